/* magic.c: what a file that is no ONNX model is, by its first bytes. >>magic
 *
 * Called by: read, external. Calls: nothing.
 * None of these beginnings is one that a writer of ONNX files makes. Text is looked at behind
 * spaces and a byte order mark.
 */
#include "onnx_private.h"

typedef struct sbit__magic {
    const char *bytes;
    uint8_t size, at; /* at: where they stand */
    const char *text;
} sbit__magic;

#define SBIT__MAGIC_TORCH "a PyTorch file: export it with torch.onnx.export"

static const sbit__magic sbit__magics[] = {
    {"\x1f\x8b", 2, 0, "compressed with gzip: unpack it first (gunzip)"},
    {"\xfd"
     "7zXZ",
     5, 0, "compressed with xz: unpack it first (unxz)"},
    {"BZh", 3, 0, "compressed with bzip2: unpack it first (bunzip2)"},
    {"\x28\xb5\x2f\xfd", 4, 0, "compressed with zstd: unpack it first (unzstd)"},
    {"7z\xbc\xaf\x27\x1c", 6, 0, "a 7z archive: unpack it first"},
    {"ustar", 5, 255, "a tar archive: unpack it first (tar -xf)"}, /* at 257 */
    {"TFL3", 4, 4, "a TensorFlow Lite model: convert it with tf2onnx --tflite"},
    {"ORTM", 4, 4, "in ONNX Runtime's ORT format: use the .onnx file that it was made from"},
    {"ptrt", 4, 0, "a TensorRT engine: use the .onnx file that it was built from"},
    {"ftrt", 4, 0, "a TensorRT engine: use the .onnx file that it was built from"},
    {"\x89HDF\r\n\x1a\n", 8, 0, "HDF5 (Keras, MATLAB): convert it with tf2onnx"},
    {"GGUF", 4, 0, "a GGUF file of weights without a graph"},
    {"\x93NUMPY", 6, 0, "a NumPy array, not a model"},
    {"\x80\x02\x8a\x0al\xfc\x9c", 7, 0, SBIT__MAGIC_TORCH},
    {"\x80\x02", 2, 0, "a Python pickle; if PyTorch wrote it: export it with torch.onnx.export"},
    {"\x89PNG", 4, 0, "a picture (PNG)"},
    {"\xff\xd8\xff", 3, 0, "a picture (JPEG)"},
    {"%PDF", 4, 0, "a PDF document"},
    {"MZ", 2, 0, "a Windows program"},
    {"\x7f"
     "ELF",
     4, 0, "a program or library (ELF)"},
};

static const sbit__magic sbit__magic_texts[] = {
    {"version https://git-lfs", 23, 0,
     "a git-LFS pointer, which stands for the real file: fetch that (git lfs pull)"},
    {"<!doctype html", 14, 0, "an HTML page: the download gave a page instead of the file"},
    {"<html", 5, 0, "an HTML page: the download gave a page instead of the file"},
    {"<?xml", 5, 0, "XML; if it is an OpenVINO model: use the ONNX file it was made from"},
    {"<net ", 5, 0, "an OpenVINO model: use the ONNX file it was made from"},
    {"{", 1, 0, "JSON text"},
    {"[", 1, 0, "JSON text"},
    {"ir_version", 10, 0,
     "ONNX in text form: make a binary file of it (onnx.save of onnx.load(..., "
     "format=\"textproto\"))"},
    {"7767517", 7, 0, "an ncnn parameter file"},
};

static bool sbit__magic_at(const sbit__magic *magic, const unsigned char *p, size_t size,
                           bool any_case)
{
    const size_t at = magic->at == 255 ? 257 : magic->at;
    if (size < at + magic->size) {
        return false;
    }
    for (size_t i = 0; i < magic->size; i++) {
        unsigned char c = p[at + i];
        c = any_case && c >= 'A' && c <= 'Z' ? (unsigned char)(c - 'A' + 'a') : c;
        if (c != (unsigned char)magic->bytes[i]) {
            return false;
        }
    }
    return true;
}

static bool sbit__magic_has(const unsigned char *p, size_t size, const char *text)
{
    const size_t length = strlen(text);
    for (size_t i = 0; i + length <= size; i++) {
        if (memcmp(p + i, text, length) == 0) {
            return true;
        }
    }
    return false;
}

/* Archives that frameworks call models; their directories are at the end. */
static const char *sbit__magic_zip(const unsigned char *p, size_t size)
{
    const size_t head = size < 4096 ? size : 4096;
    const size_t tail = size < 65536 ? size : 65536;
    if (sbit__magic_has(p, head, "data.pkl") ||
        sbit__magic_has(p + (size - tail), tail, "data.pkl")) {
        return SBIT__MAGIC_TORCH;
    }
    if (sbit__magic_has(p, head, "[Content_Types].xml")) {
        return "an Office document";
    }
    if (sbit__magic_has(p + (size - tail), tail, "model.weights.h5")) {
        return "a Keras model: convert it with tf2onnx";
    }
    return "a zip archive: unpack it first (unzip)";
}

/* A safetensors file: 8 bytes with the length of the JSON text behind them. */
static bool sbit__magic_is_safetensors(const unsigned char *p, size_t size)
{
    uint64_t length = 0;
    for (size_t i = 0; i < 8 && i < size; i++) {
        length |= (uint64_t)p[i] << (8 * i);
    }
    return size > 10 && p[8] == '{' && p[9] == '"' && length <= size - 8;
}

/* "<" and then "ir_version": the syntax of onnx.printer. */
static bool sbit__magic_is_onnx_text(const unsigned char *p, size_t size)
{
    size_t i = 1;
    while (i < size && (p[i] == ' ' || p[i] == '\n' || p[i] == '\r' || p[i] == '\t')) {
        i++;
    }
    return size > 0 && p[0] == '<' && size - i > 10 && memcmp(p + i, "ir_version", 10) == 0;
}

SBIT__FN const char *sbit__onnx_magic(const void *bytes, size_t size)
{
    const unsigned char *p = (const unsigned char *)bytes;
    if (size >= 4 && memcmp(p, "PK\x03\x04", 4) == 0) {
        return sbit__magic_zip(p, size);
    }
    if (sbit__magic_is_safetensors(p, size)) {
        return "a safetensors file: weights without a graph";
    }
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__magics); i++) {
        if (sbit__magic_at(&sbit__magics[i], p, size, false)) {
            return sbit__magics[i].text;
        }
    }
    if (size >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) {
        p += 3;
        size -= 3;
    }
    while (size > 0 && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t')) {
        p++;
        size--;
    }
    for (size_t i = 0; i < SBIT__COUNT_OF(sbit__magic_texts); i++) {
        if (sbit__magic_at(&sbit__magic_texts[i], p, size, true)) {
            return sbit__magic_texts[i].text;
        }
    }
    return sbit__magic_is_onnx_text(p, size) ? "ONNX in text form: make a binary file of it "
                                               "(onnx.save of onnx.parser.parse_model)"
                                             : NULL;
}

#undef SBIT__MAGIC_TORCH
