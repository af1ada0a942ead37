/* test_magic.c: what is no ONNX model is named for what it is. */
#include "../sparsebit.h"
#include "test.h"
#include "build_graph.h"
#include "model_text.h"

static void magic_is(const void *bytes, size_t size, const char *part, const char *what)
{
    sbit_onnx_doc *doc = NULL;
    sbit_error error;
    memset(&error, 0, sizeof error);
    if (CHECK_STATUS(sbit_onnx_read(bytes, size, NULL, &doc, &error), SBIT_ERR_PARSE, error)) {
        CHECK_MSG(strstr(error.message, part) != NULL, "%s: '%s' does not say '%s'", what,
                  error.message, part);
    } else {
        printf("  %s\n", what);
        sbit_onnx_destroy(doc);
    }
}

TEST(other_files_are_named)
{
    static const struct {
        const char *what, *bytes;
        size_t size;
        const char *part;
    } files[] = {
#define FILE_OF(what, text, part) {what, text, sizeof(text) - 1, part}
        FILE_OF("zip", "PK\x03\x04\x14\0\0\0\x08\0\0\0\0\0\0\0\0\0", "unzip"),
        FILE_OF("torch zip", "PK\x03\x04\x14\0\0\0\x08\0\0\0\0\0\0\0\0\0archive/data.pklFB",
                "PyTorch"),
        FILE_OF("gzip", "\x1f\x8b\x08\0\0\0\0\0\0\x03", "gunzip"),
        FILE_OF("xz",
                "\xfd"
                "7zXZ\0\0\x04\xe6\xd6",
                "unxz"),
        FILE_OF("bzip2", "BZh91AY&SY", "bunzip2"),
        FILE_OF("zstd", "\x28\xb5\x2f\xfd\x24\x05", "unzstd"),
        FILE_OF("html", "\n <!DOCTYPE html>\n<html><body>404</body>", "HTML"),
        FILE_OF("html 2", "<HTML><head>", "HTML"),
        FILE_OF("json", "{\"message\": \"Not Found\"}", "JSON"),
        FILE_OF("json with mark", "\xef\xbb\xbf[1, 2]", "JSON"),
        FILE_OF("lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1\n",
                "git-LFS"),
        FILE_OF("tflite", "\x1c\0\0\0TFL3\x14\0\x20\0", "TensorFlow Lite"),
        FILE_OF("ort", "\x18\0\0\0ORTM\0\0\0\0", "ORT format"),
        FILE_OF("tensorrt", "ptrt\0\0\0\0\x10\0\0\0", "TensorRT"),
        FILE_OF("tensorrt old", "ftrt\0\0\0\0\x10\0\0\0", "TensorRT"),
        FILE_OF("hdf5", "\x89HDF\r\n\x1a\n\0\0\0\0", "HDF5"),
        FILE_OF("safetensors", "\x10\0\0\0\0\0\0\0{\"a\":{\"dtype\":1}} ", "safetensors"),
        FILE_OF("torch pickle", "\x80\x02\x8a\nl\xfc\x9c\x46\xf9\x20\x6a\xa8P\x19.", "PyTorch"),
        FILE_OF("onnx text", "<\n   ir_version: 10,\n   opset_import: [\"\" : 21]\n>\n",
                "text form"),
        FILE_OF("onnx textproto", "ir_version: 8\nproducer_name: \"x\"\n", "text form"),
        FILE_OF("gguf", "GGUF\x03\0\0\0", "GGUF"),
        FILE_OF("numpy", "\x93NUMPY\x01\0v\0{'descr'", "NumPy"),
        FILE_OF("png", "\x89PNG\r\n\x1a\n\0\0", "PNG"),
        FILE_OF("xml", "<?xml version=\"1.0\"?><net name=\"x\">", "XML"),
#undef FILE_OF
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        magic_is(files[i].bytes, files[i].size, files[i].part, files[i].what);
    }
}

/* Every beginning of a model stays what it was: readable, or damaged at a place that is told. */
TEST(models_are_not_taken_for_something_else)
{
    const model_bytes bytes = model_from_text("in x f32 4\nRelu x -> y\nout y f32 4\n");
    for (size_t size = 0; size <= bytes.size; size++) {
        sbit_onnx_doc *doc = NULL;
        sbit_error error;
        memset(&error, 0, sizeof error);
        if (sbit_onnx_read(bytes.data, size, NULL, &doc, &error) == SBIT_OK) {
            sbit_onnx_destroy(doc);
        } else {
            CHECK(strstr(error.message, "is no ONNX") == NULL);
        }
    }
    free(bytes.data);
}

TEST(a_pointer_in_the_place_of_external_data_is_named)
{
    static const char pointer[] =
        "version https://git-lfs.github.com/spec/v1\n"
        "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
        "size 65536\n";
    char path[300], data[320];
    for (int large = 0; large < 2; large++) { /* 64 bytes of weights would fit into the pointer */
        build b;
        build_begin(&b, 17);
        const sbit_value_id x = build_input(&b, "x", SBIT_F32, "1,4");
        const sbit_value_id w = build_weights(&b, "w", large == 1 ? "4,4096" : "4,4", 1);
        build_output(&b, build_binary(&b, "MatMul", "y", x, w));
        sbit_onnx_write_desc desc;
        memset(&desc, 0, sizeof desc);
        desc.external_above_bytes = 1;
        test_tmp_path("magic-lfs.onnx", path, sizeof path);
        CHECK_OK(sbit_graph_save(b.graph, path, &desc, &b.error), b.error);
        snprintf(data, sizeof data, "%s.data", path);
        FILE *file = fopen(data, "wb");
        if (CHECK(file != NULL)) {
            fwrite(pointer, 1, sizeof pointer - 1, file);
            fclose(file);
        }
        sbit_graph *graph = NULL;
        memset(&b.error, 0, sizeof b.error);
        CHECK_STATUS(sbit_graph_load(b.ctx, path, &graph, &b.error), SBIT_ERR_PARSE, b.error);
        CHECK_CONTAINS(b.error.message, "git-LFS pointer");
        CHECK_CONTAINS(b.error.message, "tensor 'w'");
        sbit_graph_destroy(graph);
        build_end(&b);
    }
}
