/* fuzz_onnx.c: libFuzzer target for the ONNX codec.
 *
 *     make -C tests fuzz
 * or  clang -g -O1 -std=gnu99 -fsanitize=fuzzer,address,undefined -I.. -o fuzz_onnx \
 *           fuzz_onnx.c ../tools/sparsebit_impl.c -lm -lpthread
 *     ./fuzz_onnx corpus/ ../../shared/models/zoo
 *
 * The first byte picks the kind of message, the rest is read as one; a first byte that starts a
 * model (the tag of ir_version) is part of one. What can be read is checked, printed, copied,
 * written and read again; the second reading must give the same message.
 */
#include "../sparsebit_onnx.h"

#include <stdlib.h> /* malloc, abort: how libFuzzer learns of a finding */
#include <string.h> /* memset */

#define FUZZ_MODEL_TAG 0x08

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_expect(bool held)
{
    if (!held) {
        abort();
    }
}

static void fuzz_put(const char *text, size_t size, void *user)
{
    size_t *sum = (size_t *)user;
    for (size_t i = 0; i < size; i++) {
        *sum += (unsigned char)text[i];
    }
}

/* Reads all elements of a model's initializers. */
static void fuzz_tensors(sbit_onnx_doc *doc, size_t *sum)
{
    const sbit_onnx_model *model = sbit_onnx_doc_model(doc);
    if (model == NULL || model->graph == NULL) {
        return;
    }
    for (size_t i = 0; i < model->graph->initializer_count; i++) {
        sbit_str view;
        if (sbit_onnx_tensor_data(doc, &model->graph->initializer[i], &view, NULL) == SBIT_OK) {
            fuzz_put(view.data, view.size, sum);
        }
    }
}

static void fuzz_write(sbit_onnx_doc *doc, const sbit_onnx_read_desc *desc)
{
    const sbit_onnx_kind kind = sbit_onnx_doc_kind(doc);
    const void *root = sbit_onnx_doc_root(doc);
    const size_t size = (size_t)sbit_onnx_measure(kind, root);
    unsigned char *bytes = (unsigned char *)malloc(size + 1);
    sbit_onnx_doc *again = NULL;
    size_t written = 0;
    fuzz_expect(bytes != NULL);
    fuzz_expect(sbit_onnx_write(kind, root, bytes, size, &written, NULL) == SBIT_OK);
    fuzz_expect(written == size);
    fuzz_expect(sbit_onnx_read(bytes, size, desc, &again, NULL) == SBIT_OK);
    fuzz_expect(sbit_onnx_equal(kind, root, sbit_onnx_doc_root(again)));
    sbit_onnx_destroy(again);
    free(bytes);
}

static void fuzz_copy(sbit_onnx_doc *doc, const sbit_onnx_read_desc *desc)
{
    const sbit_onnx_kind kind = sbit_onnx_doc_kind(doc);
    sbit_onnx_doc *copy = NULL;
    fuzz_expect(sbit_onnx_create(desc, &copy, NULL) == SBIT_OK);
    fuzz_expect(sbit_onnx_copy(copy, kind, sbit_onnx_doc_root(doc), sbit_onnx_doc_root(copy), true,
                               NULL) == SBIT_OK);
    fuzz_expect(sbit_onnx_equal(kind, sbit_onnx_doc_root(doc), sbit_onnx_doc_root(copy)));
    sbit_onnx_destroy(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sbit_onnx_read_desc desc;
    sbit_onnx_doc *doc = NULL;
    sbit_error error;
    size_t sum = 0;
    memset(&desc, 0, sizeof desc); /* a model */
    if (size != 0 && data[0] < SBIT_ONNX_KIND_COUNT && data[0] != FUZZ_MODEL_TAG) {
        desc.kind = (sbit_onnx_kind)data[0];
        data++;
        size--;
    }
    if (sbit_onnx_read(data, size, &desc, &doc, &error) != SBIT_OK) {
        fuzz_expect(doc == NULL && error.message[0] != '\0');
        return 0;
    }
    sbit_onnx_check(doc, &error);
    fuzz_tensors(doc, &sum);
    sbit_onnx_print(sbit_onnx_doc_kind(doc), sbit_onnx_doc_root(doc), 3, fuzz_put, &sum);
    fuzz_write(doc, &desc);
    fuzz_copy(doc, &desc);
    sbit_onnx_destroy(doc);
    return 0;
}
