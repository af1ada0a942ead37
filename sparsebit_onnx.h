/* GENERATED from src/ by tools/amalgamate - do not edit. Edit src/<file>, then run 'make -C tools amalgamate'. */
/* ---- begin src/manual_onnx.txt ----
sparsebit_onnx.h - read and write ONNX files in C, without protobuf           MIT license

WHAT IT IS
    Every message of onnx.proto (up to IR version 13) and onnx-data.proto as a plain struct, a
    reader and a writer. No dependency but the C library. It works alone; sparsebit.h is built
    on it.

DO THIS
    In exactly one C or C++ file of the project:

        #define SPARSEBIT_ONNX_IMPLEMENTATION
        #include "sparsebit_onnx.h"

    and plain #include everywhere else. A file that defines SPARSEBIT_IMPLEMENTATION and includes
    sparsebit.h brings in this code too: define one of the two, not both.

EXAMPLE
        #define SPARSEBIT_ONNX_IMPLEMENTATION
        #include "sparsebit_onnx.h"
        #include <stdio.h>

        int main(int argc, char **argv)
        {
            sbit_onnx_doc *doc = NULL;
            sbit_error error;
            if (argc < 2 || sbit_onnx_load(argv[1], NULL, &doc, &error) != SBIT_OK) {
                fprintf(stderr, "%s\n", argc < 2 ? "usage: nodes MODEL" : error.message);
                return 1;
            }
            const sbit_onnx_graph *graph = sbit_onnx_doc_model(doc)->graph;
            for (size_t i = 0; graph != NULL && i < graph->node_count; i++) {
                printf("%s %s\n", graph->node[i].op_type.data, graph->node[i].name.data);
            }
            sbit_onnx_destroy(doc);
            return 0;
        }

STEP BY STEP
    read        sbit_onnx_load(path) maps the file, sbit_onnx_read(bytes) takes memory. The result
                is a document: one arena with all structs and text. raw_data and other bytes fields
                are views into the file or the caller's memory.
    look        sbit_onnx_doc_model(doc), then plain members. Repeated fields are a pointer and a
                count. SBIT_ONNX_HAS says if an optional field was present.
    tensors     sbit_onnx_tensor_data gives the elements of a TensorProto whichever field holds
                them (raw_data, float_data, ..., external file), with the length checked.
    change      set members; new arrays come from sbit_onnx_alloc, text from sbit_onnx_text;
                SBIT_ONNX_SET marks presence.
    check       sbit_onnx_check tests the rules of the format that need no operator knowledge.
    write       sbit_onnx_save writes a temporary file and renames it; sbit_onnx_measure and
                sbit_onnx_write work on memory. Weights can go to an external file.

WHAT SURVIVES
    Fields that this schema does not know, presence of defaults, packed or unpacked encoding: a
    file by a writer that orders fields by number (protobuf does) comes back byte for byte.

OPTIONS (0 or 1, before the implementation)
    SPARSEBIT_STATIC        all functions static
    SPARSEBIT_NO_FILES      no file access
    SPARSEBIT_NO_MMAP       read files instead of mapping them
    SPARSEBIT_ASSERT(x)     checks programmers' mistakes; nothing by default

MEMORY AND THREADS
    All memory comes from the allocator in the desc. No globals: documents are independent. One
    document has many readers or one writer.

ERRORS
    Functions return sbit_status; sbit_error, if given, says what and where (byte offset, field
    path). Input is not trusted: every length is checked before use, depth and memory are limited
    (sbit_onnx_read_desc). Nothing exits, aborts or prints.
---- end src/manual_onnx.txt ---- */

#ifndef SPARSEBIT_ONNX_INCLUDED
#define SPARSEBIT_ONNX_INCLUDED

#include <stdbool.h> /* bool */
#include <stddef.h>  /* size_t, NULL */
#include <stdint.h>  /* int64_t and friends */

#ifdef __cplusplus
extern "C" {
#endif

/* ---- begin src/base/base_api.h ---- */
/* base_api.h: status, error, allocator and byte views: what every other part speaks. >>base
 *
 * Called by: everything. Calls: nothing. Stands alone in sparsebit_onnx.h.
 * All functions here are thread-safe: none keeps state.
 */

#define SPARSEBIT_VERSION_MAJOR 0
#define SPARSEBIT_VERSION_MINOR 1
#define SPARSEBIT_VERSION_PATCH 0
#define SPARSEBIT_VERSION "0.1.0"

/* Linkage of every public function: `extern`, or `static` with SPARSEBIT_STATIC. */
#ifndef SPARSEBIT_API
#if defined(SPARSEBIT_STATIC)
#if defined(__GNUC__)
#define SPARSEBIT_API static __attribute__((unused))
#else
#define SPARSEBIT_API static
#endif
#else
#define SPARSEBIT_API extern
#endif
#endif

/* The result of everything that can fail: 0 is success, negative says which class of failure. */
#define SBIT_STATUS_LIST(X)                                                                        \
    X(SBIT_OK, 0, "success")                                                                       \
    X(SBIT_ERR_OUT_OF_MEMORY, -1, "out of memory")                                                 \
    X(SBIT_ERR_INVALID_ARGUMENT, -2, "invalid argument")                                           \
    X(SBIT_ERR_IO, -3, "file cannot be read or written")                                           \
    X(SBIT_ERR_PARSE, -4, "malformed input")                                                       \
    X(SBIT_ERR_LIMIT, -5, "a size or depth limit was exceeded")                                    \
    X(SBIT_ERR_UNSUPPORTED, -6, "not supported")                                                   \
    X(SBIT_ERR_INVALID_MODEL, -7, "the model breaks a rule of ONNX")                               \
    X(SBIT_ERR_SHAPE, -8, "shapes or types do not fit")                                            \
    X(SBIT_ERR_NOT_FOUND, -9, "no such name")                                                      \
    X(SBIT_ERR_DUPLICATE, -10, "name already taken")                                               \
    X(SBIT_ERR_CONFIG, -11, "invalid configuration")                                               \
    X(SBIT_ERR_STATE, -12, "called in the wrong order")                                            \
    X(SBIT_ERR_NUMERIC, -13, "a value is not finite")                                              \
    X(SBIT_ERR_CANCELLED, -14, "cancelled by the caller")

typedef enum sbit_status {
#define SBIT__STATUS_ENUM(name, value, text) name = value,
    SBIT_STATUS_LIST(SBIT__STATUS_ENUM)
#undef SBIT__STATUS_ENUM
    SBIT__STATUS_FORCE_INT = 0x7fffffff
} sbit_status;

/* Details of a failure, owned by the caller; pass NULL where they do not matter.
 * message: one sentence naming the thing, cut to fit. where: byte offset, "line:column", node or
 * tensor name, may be empty. Written only on failure. */
typedef struct sbit_error {
    sbit_status status;
    char message[512];
    char where[128];
} sbit_error;

/* The fixed English text of a status; "unknown status" for other values. Never NULL. */
SPARSEBIT_API const char *sbit_status_text(sbit_status status);

/* Where all memory comes from. All three functions or none ({0} = malloc/realloc/free).
 * alloc_fn returns memory aligned for any type, or NULL; sizes are never 0.
 * realloc_fn gets the old size; on NULL the old block stays valid.
 * free_fn gets the size that was asked for; never called with NULL.
 * Called from the thread that calls the library, never from pool threads. */
typedef struct sbit_allocator {
    void *(*alloc_fn)(size_t bytes, void *user);
    void *(*realloc_fn)(void *ptr, size_t old_bytes, size_t new_bytes, void *user);
    void (*free_fn)(void *ptr, size_t bytes, void *user);
    void *user;
} sbit_allocator;

/* A view of bytes that something else owns. A view of *text* is always followed by a NUL that
 * `size` does not count, so `data` can be used as a C string; a view of *bytes* is not. */
typedef struct sbit_str {
    const char *data; /* NULL only if size is 0 */
    size_t size;
} sbit_str;

/* The word that `text` was probably meant to be ("did you mean"): few edits away in any case of
 * letters, or begun by it. NULL: none is near. */
SPARSEBIT_API const char *sbit_word_nearest(const char *text, const char *const *words,
                                            size_t count);
/* ---- end src/base/base_api.h ---- */

/* ---- begin src/onnx/onnx_api.h ---- */
/* onnx_api.h: the ONNX codec: every message of onnx.proto (IR version 13) and onnx-data.proto as
 * plain structs, read and written without protobuf. >>onnx
 *
 * Called by: users of sparsebit_onnx.h, graph import and export, the tests. Calls: base.
 * Reading gives one document: one arena holds all structs, text and small arrays; `bytes` fields
 * (raw_data) are views into the file, which stays mapped. One destroy frees everything.
 * A document has many readers or one writer. Nothing here knows what an operator means.
 */

/* Element types; the numbers are TensorProto.DataType's. Bits of one element in comments. */
#define SBIT_DTYPE_LIST(X) /* name, number, bits (0 = no fixed size), text */                      \
    X(SBIT_UNDEFINED, 0, 0, "undefined")                                                           \
    X(SBIT_F32, 1, 32, "float32")                                                                  \
    X(SBIT_U8, 2, 8, "uint8")                                                                      \
    X(SBIT_I8, 3, 8, "int8")                                                                       \
    X(SBIT_U16, 4, 16, "uint16")                                                                   \
    X(SBIT_I16, 5, 16, "int16")                                                                    \
    X(SBIT_I32, 6, 32, "int32")                                                                    \
    X(SBIT_I64, 7, 64, "int64")                                                                    \
    X(SBIT_STRING, 8, 0, "string")                                                                 \
    X(SBIT_BOOL, 9, 8, "bool")                                                                     \
    X(SBIT_F16, 10, 16, "float16")                                                                 \
    X(SBIT_F64, 11, 64, "float64")                                                                 \
    X(SBIT_U32, 12, 32, "uint32")                                                                  \
    X(SBIT_U64, 13, 64, "uint64")                                                                  \
    X(SBIT_C64, 14, 64, "complex64")                                                               \
    X(SBIT_C128, 15, 128, "complex128")                                                            \
    X(SBIT_BF16, 16, 16, "bfloat16")                                                               \
    X(SBIT_F8E4M3FN, 17, 8, "float8e4m3fn")                                                        \
    X(SBIT_F8E4M3FNUZ, 18, 8, "float8e4m3fnuz")                                                    \
    X(SBIT_F8E5M2, 19, 8, "float8e5m2")                                                            \
    X(SBIT_F8E5M2FNUZ, 20, 8, "float8e5m2fnuz")                                                    \
    X(SBIT_U4, 21, 4, "uint4")                                                                     \
    X(SBIT_I4, 22, 4, "int4")                                                                      \
    X(SBIT_F4E2M1, 23, 4, "float4e2m1")                                                            \
    X(SBIT_F8E8M0, 24, 8, "float8e8m0")                                                            \
    X(SBIT_U2, 25, 2, "uint2")                                                                     \
    X(SBIT_I2, 26, 2, "int2")                                                                      \
    X(SBIT_F6E2M3, 27, 6, "float6e2m3")                                                            \
    X(SBIT_F6E3M2, 28, 6, "float6e3m2")

typedef enum sbit_dtype {
#define SBIT__DTYPE_ENUM(name, number, bits, text) name = number,
    SBIT_DTYPE_LIST(SBIT__DTYPE_ENUM)
#undef SBIT__DTYPE_ENUM
    SBIT_DTYPE_COUNT
} sbit_dtype;

SPARSEBIT_API const char *sbit_dtype_name(int32_t dtype); /* "unknown" for other numbers */
SPARSEBIT_API int sbit_dtype_bits(int32_t dtype);         /* 0: string, undefined, unknown */
/* Bytes of `count` elements as raw_data stores them (2, 4 and 6 bit types are packed, low
 * bits first, rows not padded). False: no fixed size, or overflow. */
SPARSEBIT_API bool sbit_dtype_bytes(int32_t dtype, int64_t count, size_t *bytes);

/* AttributeProto.AttributeType */
typedef enum sbit_onnx_attribute_type {
    SBIT_ONNX_ATTR_UNDEFINED = 0,
    SBIT_ONNX_ATTR_FLOAT = 1,
    SBIT_ONNX_ATTR_INT = 2,
    SBIT_ONNX_ATTR_STRING = 3,
    SBIT_ONNX_ATTR_TENSOR = 4,
    SBIT_ONNX_ATTR_GRAPH = 5,
    SBIT_ONNX_ATTR_FLOATS = 6,
    SBIT_ONNX_ATTR_INTS = 7,
    SBIT_ONNX_ATTR_STRINGS = 8,
    SBIT_ONNX_ATTR_TENSORS = 9,
    SBIT_ONNX_ATTR_GRAPHS = 10,
    SBIT_ONNX_ATTR_SPARSE_TENSOR = 11,
    SBIT_ONNX_ATTR_SPARSE_TENSORS = 12,
    SBIT_ONNX_ATTR_TYPE_PROTO = 13,
    SBIT_ONNX_ATTR_TYPE_PROTOS = 14
} sbit_onnx_attribute_type;

/* What every message starts with. */
typedef struct sbit_onnx_msg {
    uint32_t has;       /* bit n: the singular field with number n is present */
    uint32_t repacked;  /* bit n: repeated field n uses the other packing than onnx.proto says */
    sbit_str unknown;   /* fields the schema does not know, byte for byte, written back last */
} sbit_onnx_msg;

/* Presence of a singular field, and setting it: SBIT_ONNX_SET(node, SBIT_ONNX_NODE_NAME, name,
 * text). Message-typed fields are present when their pointer is not NULL; `has` is not asked. */
#define SBIT_ONNX_HAS(message, field) (((message)->msg.has >> (field)) & 1u)
#define SBIT_ONNX_SET(message, field, member, value)                                               \
    ((message)->msg.has |= 1u << (field), (message)->member = (value))
#define SBIT_ONNX_CLEAR(message, field) ((message)->msg.has &= ~(1u << (field)))

/* `text` fields are NUL-terminated views in the arena; repeated fields are pointer + count. */

/* Message kinds, in the order of the schema table. */
typedef enum sbit_onnx_kind {
    SBIT_ONNX_STRING_ENTRY = 0,
    SBIT_ONNX_OPSET_ID,
    SBIT_ONNX_SEGMENT,
    SBIT_ONNX_TENSOR,
    SBIT_ONNX_SPARSE_TENSOR,
    SBIT_ONNX_DIMENSION,
    SBIT_ONNX_SHAPE,
    SBIT_ONNX_TYPE_TENSOR,
    SBIT_ONNX_TYPE_SPARSE_TENSOR,
    SBIT_ONNX_TYPE_SEQUENCE,
    SBIT_ONNX_TYPE_MAP,
    SBIT_ONNX_TYPE_OPTIONAL,
    SBIT_ONNX_TYPE_OPAQUE,
    SBIT_ONNX_TYPE,
    SBIT_ONNX_VALUE_INFO,
    SBIT_ONNX_ATTRIBUTE,
    SBIT_ONNX_INT_INT_LIST_ENTRY,
    SBIT_ONNX_SIMPLE_SHARDED_DIM,
    SBIT_ONNX_SHARDED_DIM,
    SBIT_ONNX_SHARDING_SPEC,
    SBIT_ONNX_NODE_DEVICE_CONFIGURATION,
    SBIT_ONNX_NODE,
    SBIT_ONNX_TENSOR_ANNOTATION,
    SBIT_ONNX_GRAPH,
    SBIT_ONNX_TRAINING_INFO,
    SBIT_ONNX_FUNCTION,
    SBIT_ONNX_DEVICE_CONFIGURATION,
    SBIT_ONNX_MODEL,
    SBIT_ONNX_SEQUENCE,
    SBIT_ONNX_MAP,
    SBIT_ONNX_OPTIONAL,
    SBIT_ONNX_KIND_COUNT
} sbit_onnx_kind;

typedef struct sbit_onnx_string_entry sbit_onnx_string_entry;
typedef struct sbit_onnx_opset_id sbit_onnx_opset_id;
typedef struct sbit_onnx_segment sbit_onnx_segment;
typedef struct sbit_onnx_tensor sbit_onnx_tensor;
typedef struct sbit_onnx_sparse_tensor sbit_onnx_sparse_tensor;
typedef struct sbit_onnx_dimension sbit_onnx_dimension;
typedef struct sbit_onnx_shape sbit_onnx_shape;
typedef struct sbit_onnx_type_tensor sbit_onnx_type_tensor;
typedef struct sbit_onnx_type_sparse_tensor sbit_onnx_type_sparse_tensor;
typedef struct sbit_onnx_type_sequence sbit_onnx_type_sequence;
typedef struct sbit_onnx_type_map sbit_onnx_type_map;
typedef struct sbit_onnx_type_optional sbit_onnx_type_optional;
typedef struct sbit_onnx_type_opaque sbit_onnx_type_opaque;
typedef struct sbit_onnx_type sbit_onnx_type;
typedef struct sbit_onnx_value_info sbit_onnx_value_info;
typedef struct sbit_onnx_attribute sbit_onnx_attribute;
typedef struct sbit_onnx_int_int_list_entry sbit_onnx_int_int_list_entry;
typedef struct sbit_onnx_simple_sharded_dim sbit_onnx_simple_sharded_dim;
typedef struct sbit_onnx_sharded_dim sbit_onnx_sharded_dim;
typedef struct sbit_onnx_sharding_spec sbit_onnx_sharding_spec;
typedef struct sbit_onnx_node_device_configuration sbit_onnx_node_device_configuration;
typedef struct sbit_onnx_node sbit_onnx_node;
typedef struct sbit_onnx_tensor_annotation sbit_onnx_tensor_annotation;
typedef struct sbit_onnx_graph sbit_onnx_graph;
typedef struct sbit_onnx_training_info sbit_onnx_training_info;
typedef struct sbit_onnx_function sbit_onnx_function;
typedef struct sbit_onnx_device_configuration sbit_onnx_device_configuration;
typedef struct sbit_onnx_model sbit_onnx_model;
typedef struct sbit_onnx_sequence sbit_onnx_sequence;
typedef struct sbit_onnx_map sbit_onnx_map;
typedef struct sbit_onnx_optional sbit_onnx_optional;

/* StringStringEntryProto (string_entry). */
enum {
    SBIT_ONNX_STRING_ENTRY_KEY = 1,
    SBIT_ONNX_STRING_ENTRY_VALUE = 2
};
struct sbit_onnx_string_entry {
    sbit_onnx_msg msg;
    sbit_str key;
    sbit_str value;
};

/* OperatorSetIdProto (opset_id). */
enum {
    SBIT_ONNX_OPSET_ID_DOMAIN = 1,
    SBIT_ONNX_OPSET_ID_VERSION = 2
};
struct sbit_onnx_opset_id {
    sbit_onnx_msg msg;
    sbit_str domain;
    int64_t version;
};

/* TensorProto.Segment (segment). */
enum {
    SBIT_ONNX_SEGMENT_BEGIN = 1,
    SBIT_ONNX_SEGMENT_END = 2
};
struct sbit_onnx_segment {
    sbit_onnx_msg msg;
    int64_t begin;
    int64_t end;
};

/* TensorProto (tensor). Exactly one of the data fields holds the elements; see sbit_onnx_tensor_data. */
enum {
    SBIT_ONNX_TENSOR_DIMS = 1,
    SBIT_ONNX_TENSOR_DATA_TYPE = 2,
    SBIT_ONNX_TENSOR_SEGMENT = 3,
    SBIT_ONNX_TENSOR_FLOAT_DATA = 4,
    SBIT_ONNX_TENSOR_INT32_DATA = 5,
    SBIT_ONNX_TENSOR_STRING_DATA = 6,
    SBIT_ONNX_TENSOR_INT64_DATA = 7,
    SBIT_ONNX_TENSOR_NAME = 8,
    SBIT_ONNX_TENSOR_RAW_DATA = 9,
    SBIT_ONNX_TENSOR_DOUBLE_DATA = 10,
    SBIT_ONNX_TENSOR_UINT64_DATA = 11,
    SBIT_ONNX_TENSOR_DOC_STRING = 12,
    SBIT_ONNX_TENSOR_EXTERNAL_DATA = 13,
    SBIT_ONNX_TENSOR_DATA_LOCATION = 14,
    SBIT_ONNX_TENSOR_METADATA_PROPS = 16
};
struct sbit_onnx_tensor {
    sbit_onnx_msg msg;
    int64_t *dims;
    size_t dims_count;
    int32_t data_type;
    sbit_onnx_segment *segment;
    float *float_data;
    size_t float_data_count;
    int32_t *int32_data;
    size_t int32_data_count;
    sbit_str *string_data;
    size_t string_data_count;
    int64_t *int64_data;
    size_t int64_data_count;
    sbit_str name;
    sbit_str raw_data; /* bytes: not NUL-terminated */
    double *double_data;
    size_t double_data_count;
    uint64_t *uint64_data;
    size_t uint64_data_count;
    sbit_str doc_string;
    sbit_onnx_string_entry *external_data;
    size_t external_data_count;
    int32_t data_location;
    sbit_onnx_string_entry *metadata_props;
    size_t metadata_props_count;
};

/* SparseTensorProto (sparse_tensor). */
enum {
    SBIT_ONNX_SPARSE_TENSOR_VALUES = 1,
    SBIT_ONNX_SPARSE_TENSOR_INDICES = 2,
    SBIT_ONNX_SPARSE_TENSOR_DIMS = 3
};
struct sbit_onnx_sparse_tensor {
    sbit_onnx_msg msg;
    sbit_onnx_tensor *values;
    sbit_onnx_tensor *indices;
    int64_t *dims;
    size_t dims_count;
};

/* TensorShapeProto.Dimension (dimension). dim_value or dim_param, told apart by SBIT_ONNX_HAS; neither: unknown. */
enum {
    SBIT_ONNX_DIMENSION_DIM_VALUE = 1,
    SBIT_ONNX_DIMENSION_DIM_PARAM = 2,
    SBIT_ONNX_DIMENSION_DENOTATION = 3
};
struct sbit_onnx_dimension {
    sbit_onnx_msg msg;
    int64_t dim_value;
    sbit_str dim_param;
    sbit_str denotation;
};

/* TensorShapeProto (shape). */
enum {
    SBIT_ONNX_SHAPE_DIM = 1
};
struct sbit_onnx_shape {
    sbit_onnx_msg msg;
    sbit_onnx_dimension *dim;
    size_t dim_count;
};

/* TypeProto.Tensor (type_tensor). */
enum {
    SBIT_ONNX_TYPE_TENSOR_ELEM_TYPE = 1,
    SBIT_ONNX_TYPE_TENSOR_SHAPE = 2
};
struct sbit_onnx_type_tensor {
    sbit_onnx_msg msg;
    int32_t elem_type;
    sbit_onnx_shape *shape;
};

/* TypeProto.SparseTensor (type_sparse_tensor). */
enum {
    SBIT_ONNX_TYPE_SPARSE_TENSOR_ELEM_TYPE = 1,
    SBIT_ONNX_TYPE_SPARSE_TENSOR_SHAPE = 2
};
struct sbit_onnx_type_sparse_tensor {
    sbit_onnx_msg msg;
    int32_t elem_type;
    sbit_onnx_shape *shape;
};

/* TypeProto.Sequence (type_sequence). */
enum {
    SBIT_ONNX_TYPE_SEQUENCE_ELEM_TYPE = 1
};
struct sbit_onnx_type_sequence {
    sbit_onnx_msg msg;
    sbit_onnx_type *elem_type;
};

/* TypeProto.Map (type_map). */
enum {
    SBIT_ONNX_TYPE_MAP_KEY_TYPE = 1,
    SBIT_ONNX_TYPE_MAP_VALUE_TYPE = 2
};
struct sbit_onnx_type_map {
    sbit_onnx_msg msg;
    int32_t key_type;
    sbit_onnx_type *value_type;
};

/* TypeProto.Optional (type_optional). */
enum {
    SBIT_ONNX_TYPE_OPTIONAL_ELEM_TYPE = 1
};
struct sbit_onnx_type_optional {
    sbit_onnx_msg msg;
    sbit_onnx_type *elem_type;
};

/* TypeProto.Opaque (type_opaque). */
enum {
    SBIT_ONNX_TYPE_OPAQUE_DOMAIN = 1,
    SBIT_ONNX_TYPE_OPAQUE_NAME = 2
};
struct sbit_onnx_type_opaque {
    sbit_onnx_msg msg;
    sbit_str domain;
    sbit_str name;
};

/* TypeProto (type). At most one of the six *_type pointers is set. */
enum {
    SBIT_ONNX_TYPE_TENSOR_TYPE = 1,
    SBIT_ONNX_TYPE_SEQUENCE_TYPE = 4,
    SBIT_ONNX_TYPE_MAP_TYPE = 5,
    SBIT_ONNX_TYPE_DENOTATION = 6,
    SBIT_ONNX_TYPE_OPAQUE_TYPE = 7,
    SBIT_ONNX_TYPE_SPARSE_TENSOR_TYPE = 8,
    SBIT_ONNX_TYPE_OPTIONAL_TYPE = 9
};
struct sbit_onnx_type {
    sbit_onnx_msg msg;
    sbit_onnx_type_tensor *tensor_type;
    sbit_onnx_type_sequence *sequence_type;
    sbit_onnx_type_map *map_type;
    sbit_str denotation;
    sbit_onnx_type_opaque *opaque_type;
    sbit_onnx_type_sparse_tensor *sparse_tensor_type;
    sbit_onnx_type_optional *optional_type;
};

/* ValueInfoProto (value_info). */
enum {
    SBIT_ONNX_VALUE_INFO_NAME = 1,
    SBIT_ONNX_VALUE_INFO_TYPE = 2,
    SBIT_ONNX_VALUE_INFO_DOC_STRING = 3,
    SBIT_ONNX_VALUE_INFO_METADATA_PROPS = 4
};
struct sbit_onnx_value_info {
    sbit_onnx_msg msg;
    sbit_str name;
    sbit_onnx_type *type;
    sbit_str doc_string;
    sbit_onnx_string_entry *metadata_props;
    size_t metadata_props_count;
};

/* AttributeProto (attribute). `type` says which field holds the value (enum sbit_onnx_attribute_type). */
enum {
    SBIT_ONNX_ATTRIBUTE_NAME = 1,
    SBIT_ONNX_ATTRIBUTE_F = 2,
    SBIT_ONNX_ATTRIBUTE_I = 3,
    SBIT_ONNX_ATTRIBUTE_S = 4,
    SBIT_ONNX_ATTRIBUTE_T = 5,
    SBIT_ONNX_ATTRIBUTE_G = 6,
    SBIT_ONNX_ATTRIBUTE_FLOATS = 7,
    SBIT_ONNX_ATTRIBUTE_INTS = 8,
    SBIT_ONNX_ATTRIBUTE_STRINGS = 9,
    SBIT_ONNX_ATTRIBUTE_TENSORS = 10,
    SBIT_ONNX_ATTRIBUTE_GRAPHS = 11,
    SBIT_ONNX_ATTRIBUTE_DOC_STRING = 13,
    SBIT_ONNX_ATTRIBUTE_TP = 14,
    SBIT_ONNX_ATTRIBUTE_TYPE_PROTOS = 15,
    SBIT_ONNX_ATTRIBUTE_TYPE = 20,
    SBIT_ONNX_ATTRIBUTE_REF_ATTR_NAME = 21,
    SBIT_ONNX_ATTRIBUTE_SPARSE_TENSOR = 22,
    SBIT_ONNX_ATTRIBUTE_SPARSE_TENSORS = 23
};
struct sbit_onnx_attribute {
    sbit_onnx_msg msg;
    sbit_str name;
    float f;
    int64_t i;
    sbit_str s; /* bytes: not NUL-terminated */
    sbit_onnx_tensor *t;
    sbit_onnx_graph *g;
    float *floats;
    size_t floats_count;
    int64_t *ints;
    size_t ints_count;
    sbit_str *strings;
    size_t strings_count;
    sbit_onnx_tensor *tensors;
    size_t tensors_count;
    sbit_onnx_graph *graphs;
    size_t graphs_count;
    sbit_str doc_string;
    sbit_onnx_type *tp;
    sbit_onnx_type *type_protos;
    size_t type_protos_count;
    int32_t type;
    sbit_str ref_attr_name;
    sbit_onnx_sparse_tensor *sparse_tensor;
    sbit_onnx_sparse_tensor *sparse_tensors;
    size_t sparse_tensors_count;
};

/* IntIntListEntryProto (int_int_list_entry). */
enum {
    SBIT_ONNX_INT_INT_LIST_ENTRY_KEY = 1,
    SBIT_ONNX_INT_INT_LIST_ENTRY_VALUE = 2
};
struct sbit_onnx_int_int_list_entry {
    sbit_onnx_msg msg;
    int64_t key;
    int64_t *value;
    size_t value_count;
};

/* SimpleShardedDimProto (simple_sharded_dim). */
enum {
    SBIT_ONNX_SIMPLE_SHARDED_DIM_DIM_VALUE = 1,
    SBIT_ONNX_SIMPLE_SHARDED_DIM_DIM_PARAM = 2,
    SBIT_ONNX_SIMPLE_SHARDED_DIM_NUM_SHARDS = 3
};
struct sbit_onnx_simple_sharded_dim {
    sbit_onnx_msg msg;
    int64_t dim_value;
    sbit_str dim_param;
    int64_t num_shards;
};

/* ShardedDimProto (sharded_dim). */
enum {
    SBIT_ONNX_SHARDED_DIM_AXIS = 1,
    SBIT_ONNX_SHARDED_DIM_SIMPLE_SHARDING = 2
};
struct sbit_onnx_sharded_dim {
    sbit_onnx_msg msg;
    int64_t axis;
    sbit_onnx_simple_sharded_dim *simple_sharding;
    size_t simple_sharding_count;
};

/* ShardingSpecProto (sharding_spec). */
enum {
    SBIT_ONNX_SHARDING_SPEC_TENSOR_NAME = 1,
    SBIT_ONNX_SHARDING_SPEC_DEVICE = 2,
    SBIT_ONNX_SHARDING_SPEC_INDEX_TO_DEVICE_GROUP_MAP = 3,
    SBIT_ONNX_SHARDING_SPEC_SHARDED_DIM = 4
};
struct sbit_onnx_sharding_spec {
    sbit_onnx_msg msg;
    sbit_str tensor_name;
    int64_t *device;
    size_t device_count;
    sbit_onnx_int_int_list_entry *index_to_device_group_map;
    size_t index_to_device_group_map_count;
    sbit_onnx_sharded_dim *sharded_dim;
    size_t sharded_dim_count;
};

/* NodeDeviceConfigurationProto (node_device_configuration). */
enum {
    SBIT_ONNX_NODE_DEVICE_CONFIGURATION_CONFIGURATION_ID = 1,
    SBIT_ONNX_NODE_DEVICE_CONFIGURATION_SHARDING_SPEC = 2,
    SBIT_ONNX_NODE_DEVICE_CONFIGURATION_PIPELINE_STAGE = 3
};
struct sbit_onnx_node_device_configuration {
    sbit_onnx_msg msg;
    sbit_str configuration_id;
    sbit_onnx_sharding_spec *sharding_spec;
    size_t sharding_spec_count;
    int32_t pipeline_stage;
};

/* NodeProto (node). */
enum {
    SBIT_ONNX_NODE_INPUT = 1,
    SBIT_ONNX_NODE_OUTPUT = 2,
    SBIT_ONNX_NODE_NAME = 3,
    SBIT_ONNX_NODE_OP_TYPE = 4,
    SBIT_ONNX_NODE_ATTRIBUTE = 5,
    SBIT_ONNX_NODE_DOC_STRING = 6,
    SBIT_ONNX_NODE_DOMAIN = 7,
    SBIT_ONNX_NODE_OVERLOAD = 8,
    SBIT_ONNX_NODE_METADATA_PROPS = 9,
    SBIT_ONNX_NODE_DEVICE_CONFIGURATIONS = 10
};
struct sbit_onnx_node {
    sbit_onnx_msg msg;
    sbit_str *input;
    size_t input_count;
    sbit_str *output;
    size_t output_count;
    sbit_str name;
    sbit_str op_type;
    sbit_onnx_attribute *attribute;
    size_t attribute_count;
    sbit_str doc_string;
    sbit_str domain;
    sbit_str overload;
    sbit_onnx_string_entry *metadata_props;
    size_t metadata_props_count;
    sbit_onnx_node_device_configuration *device_configurations;
    size_t device_configurations_count;
};

/* TensorAnnotation (tensor_annotation). */
enum {
    SBIT_ONNX_TENSOR_ANNOTATION_TENSOR_NAME = 1,
    SBIT_ONNX_TENSOR_ANNOTATION_QUANT_PARAMETER_TENSOR_NAMES = 2
};
struct sbit_onnx_tensor_annotation {
    sbit_onnx_msg msg;
    sbit_str tensor_name;
    sbit_onnx_string_entry *quant_parameter_tensor_names;
    size_t quant_parameter_tensor_names_count;
};

/* GraphProto (graph). */
enum {
    SBIT_ONNX_GRAPH_NODE = 1,
    SBIT_ONNX_GRAPH_NAME = 2,
    SBIT_ONNX_GRAPH_INITIALIZER = 5,
    SBIT_ONNX_GRAPH_DOC_STRING = 10,
    SBIT_ONNX_GRAPH_INPUT = 11,
    SBIT_ONNX_GRAPH_OUTPUT = 12,
    SBIT_ONNX_GRAPH_VALUE_INFO = 13,
    SBIT_ONNX_GRAPH_QUANTIZATION_ANNOTATION = 14,
    SBIT_ONNX_GRAPH_SPARSE_INITIALIZER = 15,
    SBIT_ONNX_GRAPH_METADATA_PROPS = 16
};
struct sbit_onnx_graph {
    sbit_onnx_msg msg;
    sbit_onnx_node *node;
    size_t node_count;
    sbit_str name;
    sbit_onnx_tensor *initializer;
    size_t initializer_count;
    sbit_str doc_string;
    sbit_onnx_value_info *input;
    size_t input_count;
    sbit_onnx_value_info *output;
    size_t output_count;
    sbit_onnx_value_info *value_info;
    size_t value_info_count;
    sbit_onnx_tensor_annotation *quantization_annotation;
    size_t quantization_annotation_count;
    sbit_onnx_sparse_tensor *sparse_initializer;
    size_t sparse_initializer_count;
    sbit_onnx_string_entry *metadata_props;
    size_t metadata_props_count;
};

/* TrainingInfoProto (training_info). */
enum {
    SBIT_ONNX_TRAINING_INFO_INITIALIZATION = 1,
    SBIT_ONNX_TRAINING_INFO_ALGORITHM = 2,
    SBIT_ONNX_TRAINING_INFO_INITIALIZATION_BINDING = 3,
    SBIT_ONNX_TRAINING_INFO_UPDATE_BINDING = 4
};
struct sbit_onnx_training_info {
    sbit_onnx_msg msg;
    sbit_onnx_graph *initialization;
    sbit_onnx_graph *algorithm;
    sbit_onnx_string_entry *initialization_binding;
    size_t initialization_binding_count;
    sbit_onnx_string_entry *update_binding;
    size_t update_binding_count;
};

/* FunctionProto (function). */
enum {
    SBIT_ONNX_FUNCTION_NAME = 1,
    SBIT_ONNX_FUNCTION_INPUT = 4,
    SBIT_ONNX_FUNCTION_OUTPUT = 5,
    SBIT_ONNX_FUNCTION_ATTRIBUTE = 6,
    SBIT_ONNX_FUNCTION_NODE = 7,
    SBIT_ONNX_FUNCTION_DOC_STRING = 8,
    SBIT_ONNX_FUNCTION_OPSET_IMPORT = 9,
    SBIT_ONNX_FUNCTION_DOMAIN = 10,
    SBIT_ONNX_FUNCTION_ATTRIBUTE_PROTO = 11,
    SBIT_ONNX_FUNCTION_VALUE_INFO = 12,
    SBIT_ONNX_FUNCTION_OVERLOAD = 13,
    SBIT_ONNX_FUNCTION_METADATA_PROPS = 14
};
struct sbit_onnx_function {
    sbit_onnx_msg msg;
    sbit_str name;
    sbit_str *input;
    size_t input_count;
    sbit_str *output;
    size_t output_count;
    sbit_str *attribute;
    size_t attribute_count;
    sbit_onnx_node *node;
    size_t node_count;
    sbit_str doc_string;
    sbit_onnx_opset_id *opset_import;
    size_t opset_import_count;
    sbit_str domain;
    sbit_onnx_attribute *attribute_proto;
    size_t attribute_proto_count;
    sbit_onnx_value_info *value_info;
    size_t value_info_count;
    sbit_str overload;
    sbit_onnx_string_entry *metadata_props;
    size_t metadata_props_count;
};

/* DeviceConfigurationProto (device_configuration). */
enum {
    SBIT_ONNX_DEVICE_CONFIGURATION_NAME = 1,
    SBIT_ONNX_DEVICE_CONFIGURATION_NUM_DEVICES = 2,
    SBIT_ONNX_DEVICE_CONFIGURATION_DEVICE = 3
};
struct sbit_onnx_device_configuration {
    sbit_onnx_msg msg;
    sbit_str name;
    int32_t num_devices;
    sbit_str *device;
    size_t device_count;
};

/* ModelProto (model). */
enum {
    SBIT_ONNX_MODEL_IR_VERSION = 1,
    SBIT_ONNX_MODEL_PRODUCER_NAME = 2,
    SBIT_ONNX_MODEL_PRODUCER_VERSION = 3,
    SBIT_ONNX_MODEL_DOMAIN = 4,
    SBIT_ONNX_MODEL_MODEL_VERSION = 5,
    SBIT_ONNX_MODEL_DOC_STRING = 6,
    SBIT_ONNX_MODEL_GRAPH = 7,
    SBIT_ONNX_MODEL_OPSET_IMPORT = 8,
    SBIT_ONNX_MODEL_METADATA_PROPS = 14,
    SBIT_ONNX_MODEL_TRAINING_INFO = 20,
    SBIT_ONNX_MODEL_FUNCTIONS = 25,
    SBIT_ONNX_MODEL_CONFIGURATION = 26
};
struct sbit_onnx_model {
    sbit_onnx_msg msg;
    int64_t ir_version;
    sbit_str producer_name;
    sbit_str producer_version;
    sbit_str domain;
    int64_t model_version;
    sbit_str doc_string;
    sbit_onnx_graph *graph;
    sbit_onnx_opset_id *opset_import;
    size_t opset_import_count;
    sbit_onnx_string_entry *metadata_props;
    size_t metadata_props_count;
    sbit_onnx_training_info *training_info;
    size_t training_info_count;
    sbit_onnx_function *functions;
    size_t functions_count;
    sbit_onnx_device_configuration *configuration;
    size_t configuration_count;
};

/* SequenceProto (sequence). Standalone value files (onnx-data.proto). */
enum {
    SBIT_ONNX_SEQUENCE_NAME = 1,
    SBIT_ONNX_SEQUENCE_ELEM_TYPE = 2,
    SBIT_ONNX_SEQUENCE_TENSOR_VALUES = 3,
    SBIT_ONNX_SEQUENCE_SPARSE_TENSOR_VALUES = 4,
    SBIT_ONNX_SEQUENCE_SEQUENCE_VALUES = 5,
    SBIT_ONNX_SEQUENCE_MAP_VALUES = 6,
    SBIT_ONNX_SEQUENCE_OPTIONAL_VALUES = 7
};
struct sbit_onnx_sequence {
    sbit_onnx_msg msg;
    sbit_str name;
    int32_t elem_type;
    sbit_onnx_tensor *tensor_values;
    size_t tensor_values_count;
    sbit_onnx_sparse_tensor *sparse_tensor_values;
    size_t sparse_tensor_values_count;
    sbit_onnx_sequence *sequence_values;
    size_t sequence_values_count;
    sbit_onnx_map *map_values;
    size_t map_values_count;
    sbit_onnx_optional *optional_values;
    size_t optional_values_count;
};

/* MapProto (map). */
enum {
    SBIT_ONNX_MAP_NAME = 1,
    SBIT_ONNX_MAP_KEY_TYPE = 2,
    SBIT_ONNX_MAP_KEYS = 3,
    SBIT_ONNX_MAP_STRING_KEYS = 4,
    SBIT_ONNX_MAP_VALUES = 5
};
struct sbit_onnx_map {
    sbit_onnx_msg msg;
    sbit_str name;
    int32_t key_type;
    int64_t *keys;
    size_t keys_count;
    sbit_str *string_keys;
    size_t string_keys_count;
    sbit_onnx_sequence *values;
};

/* OptionalProto (optional). */
enum {
    SBIT_ONNX_OPTIONAL_NAME = 1,
    SBIT_ONNX_OPTIONAL_ELEM_TYPE = 2,
    SBIT_ONNX_OPTIONAL_TENSOR_VALUE = 3,
    SBIT_ONNX_OPTIONAL_SPARSE_TENSOR_VALUE = 4,
    SBIT_ONNX_OPTIONAL_SEQUENCE_VALUE = 5,
    SBIT_ONNX_OPTIONAL_MAP_VALUE = 6,
    SBIT_ONNX_OPTIONAL_OPTIONAL_VALUE = 7
};
struct sbit_onnx_optional {
    sbit_onnx_msg msg;
    sbit_str name;
    int32_t elem_type;
    sbit_onnx_tensor *tensor_value;
    sbit_onnx_sparse_tensor *sparse_tensor_value;
    sbit_onnx_sequence *sequence_value;
    sbit_onnx_map *map_value;
    sbit_onnx_optional *optional_value;
};
/* >>documents: a message of any kind with the memory it lives in. */
typedef struct sbit_onnx_doc sbit_onnx_doc;

/* How to read; {0} is the default. */
typedef struct sbit_onnx_read_desc {
    sbit_allocator allocator;   /* {0}: malloc */
    sbit_onnx_kind kind;        /* 0 (SBIT_ONNX_STRING_ENTRY): SBIT_ONNX_MODEL */
    size_t max_arena_bytes;     /* 0: 1 GiB + 8 times the input size; structs and text, not weights */
    uint32_t max_depth;         /* 0: 100 nested messages */
    uint64_t max_file_bytes;    /* 0: no limit but the address space */
} sbit_onnx_read_desc;

/* Reads a document from a file (mapped while the document lives) or from memory that the caller
 * keeps unchanged until the document is destroyed. desc may be NULL. On failure *out is untouched;
 * error->where is the byte offset, the message names the field path ("graph.node[3].attribute[0]").
 * Errors: IO, PARSE, LIMIT, OUT_OF_MEMORY. Free with sbit_onnx_destroy. */
SPARSEBIT_API sbit_status sbit_onnx_load(const char *path, const sbit_onnx_read_desc *desc,
                                         sbit_onnx_doc **out, sbit_error *error);
SPARSEBIT_API sbit_status sbit_onnx_read(const void *bytes, size_t size,
                                         const sbit_onnx_read_desc *desc, sbit_onnx_doc **out,
                                         sbit_error *error);
/* An empty document of desc->kind to build a message in. */
SPARSEBIT_API sbit_status sbit_onnx_create(const sbit_onnx_read_desc *desc, sbit_onnx_doc **out,
                                           sbit_error *error);
SPARSEBIT_API void sbit_onnx_destroy(sbit_onnx_doc *doc); /* NULL is fine */

SPARSEBIT_API sbit_onnx_kind sbit_onnx_doc_kind(const sbit_onnx_doc *doc);
SPARSEBIT_API void *sbit_onnx_doc_root(sbit_onnx_doc *doc);            /* never NULL */
SPARSEBIT_API sbit_onnx_model *sbit_onnx_doc_model(sbit_onnx_doc *doc); /* NULL: other kind */
/* The folder of the loaded file ("." if none): where external data is looked for. */
SPARSEBIT_API const char *sbit_onnx_doc_folder(const sbit_onnx_doc *doc);

/* Memory that lives as long as the document, zeroed; NULL when out of memory. */
SPARSEBIT_API void *sbit_onnx_alloc(sbit_onnx_doc *doc, size_t count, size_t bytes_each);
SPARSEBIT_API sbit_status sbit_onnx_text(sbit_onnx_doc *doc, const char *text, size_t size,
                                         sbit_str *out, sbit_error *error); /* copies */
/* Deep copy of a message of `kind` into doc's arena. Bytes fields too when copy_bytes, else they
 * stay borrowed from what the source borrows from. */
SPARSEBIT_API sbit_status sbit_onnx_copy(sbit_onnx_doc *doc, sbit_onnx_kind kind, const void *src,
                                         void *dst, bool copy_bytes, sbit_error *error);
/* True if both messages hold the same fields, elements and unknown bytes. */
SPARSEBIT_API bool sbit_onnx_equal(sbit_onnx_kind kind, const void *a, const void *b);

/* >>writing */
typedef struct sbit_onnx_write_desc {
    /* 0: keep weights inside while the file stays below 2 GB, else move those above 1 KiB outside.
     * N: move weights of N bytes and more to an external file. SIZE_MAX: never (error over 2 GB). */
    size_t external_above_bytes;
    const char *external_name; /* NULL: the file's own name + ".data"; a name without folders */
    uint32_t external_align;   /* 0: 4096; offset alignment of each weight */
} sbit_onnx_write_desc;

/* Bytes the message takes when written (no external data). Messages over 2 GB are fine here. */
SPARSEBIT_API uint64_t sbit_onnx_measure(sbit_onnx_kind kind, const void *message);
/* Writes to memory of at least sbit_onnx_measure() bytes. */
SPARSEBIT_API sbit_status sbit_onnx_write(sbit_onnx_kind kind, const void *message, void *buffer,
                                          size_t capacity, size_t *written, sbit_error *error);
/* Writes to `path` through a temporary file and a rename. desc may be NULL. Weights that are
 * external in `doc` are read from its folder and follow desc too. The document is not changed. */
SPARSEBIT_API sbit_status sbit_onnx_save(sbit_onnx_doc *doc, const char *path,
                                         const sbit_onnx_write_desc *desc, sbit_error *error);

/* >>tensors: the elements of a TensorProto. */
/* Element count; error when a dim is negative or the product overflows. */
SPARSEBIT_API sbit_status sbit_onnx_tensor_count(const sbit_onnx_tensor *tensor, int64_t *count,
                                                 sbit_error *error);
/* A view of the elements in raw_data's layout and the host's byte order, whichever field they are
 * stored in, with the length checked against dims. Typed fields and (on big-endian hosts) raw data
 * are converted into doc's arena; external data is mapped from doc's folder. The view may be
 * unaligned; valid until doc is destroyed. Not for strings (use string_data). */
SPARSEBIT_API sbit_status sbit_onnx_tensor_data(sbit_onnx_doc *doc, const sbit_onnx_tensor *tensor,
                                                sbit_str *out, sbit_error *error);

/* >>check: rules of the format that need no operator knowledge: ir_version, one graph, unique
 * names and single assignment (SSA), topological order, inputs that exist in this or an outer
 * scope, tensors whose data matches dims, opset imports for used domains. First problem wins. */
SPARSEBIT_API sbit_status sbit_onnx_check(sbit_onnx_doc *doc, sbit_error *error);

/* Readable text (protobuf's text format style, long data cut), in pieces to `put`. */
SPARSEBIT_API void sbit_onnx_print(sbit_onnx_kind kind, const void *message, uint32_t max_elements,
                                   void (*put)(const char *text, size_t size, void *user),
                                   void *user);
/* ---- end src/onnx/onnx_api.h ---- */

#ifdef __cplusplus
}
#endif

#endif /* SPARSEBIT_ONNX_INCLUDED */

#ifdef SPARSEBIT_ONNX_IMPLEMENTATION
/* ======== The code. >>code ======== */

#ifndef SPARSEBIT_ONNX_IMPLEMENTED
#define SPARSEBIT_ONNX_IMPLEMENTED

/* ---- begin src/base/base_private.h ---- */
/* base_private.h: configuration block, private linkage, arena, checked arithmetic, text, files.
 *
 * Called by: every implementation file of both headers. Calls: libc, and the operating system
 * only in base/file.c.
 */
#ifndef SBIT_BASE_PRIVATE_H
#define SBIT_BASE_PRIVATE_H

#include <stdarg.h> /* va_list for message formatting */
#include <string.h> /* memcpy, memset, memcmp, strlen */

/* >>config ---------------------------------------------------------------------------------
 * All switches are 0 or 1 and concern the implementation only: no declaration depends on them.
 */
#ifndef SPARSEBIT_NO_FILES /* 1: no file access (load/save by path fail); saves the OS headers */
#define SPARSEBIT_NO_FILES 0
#endif
#ifndef SPARSEBIT_NO_MMAP /* 1: read files into memory instead of mapping them */
#define SPARSEBIT_NO_MMAP 0
#endif
#ifndef SPARSEBIT_NO_THREADS /* 1: no thread pool; parallel_for callbacks still work */
#if defined(_WIN32) || defined(__unix__) || defined(__APPLE__) || defined(__HAIKU__)
#define SPARSEBIT_NO_THREADS 0
#else /* no system, or none that is known: define it 0 where there are POSIX threads */
#define SPARSEBIT_NO_THREADS 1
#endif
#endif
#ifndef SPARSEBIT_NO_SIMD /* 1: scalar kernels only; smaller, 10-50 times slower */
#define SPARSEBIT_NO_SIMD 0
#endif
#ifndef SPARSEBIT_ASSERT /* programmers' mistakes; has no side effects; off by default */
#define SPARSEBIT_ASSERT(expr) ((void)0)
#endif

/* Linkage of private functions that several source files share: `static` in the single header,
 * external in the split build (SBIT_SPLIT_BUILD), where src/ files are compiled one by one. */
#if defined(SBIT_SPLIT_BUILD)
#define SBIT__FN
#elif defined(__GNUC__)
#define SBIT__FN static __attribute__((unused))
#else
#define SBIT__FN static
#endif

#if defined(__GNUC__)
#define SBIT__INLINE static inline __attribute__((always_inline, unused))
#define SBIT__RESTRICT __restrict__
#define SBIT__PRINTF(fmt_idx, arg_idx) __attribute__((format(printf, fmt_idx, arg_idx)))
#elif defined(_MSC_VER)
#define SBIT__INLINE static __forceinline
#define SBIT__RESTRICT __restrict
#define SBIT__PRINTF(fmt_idx, arg_idx)
#else
#define SBIT__INLINE static inline
#define SBIT__RESTRICT
#define SBIT__PRINTF(fmt_idx, arg_idx)
#endif

/* Leaves the function with the status of a failed call. The only flow macro: functions that own
 * something are written as a wrapper that cleans up around a body that uses this. */
#define SBIT__TRY(expr)                                                                            \
    do {                                                                                           \
        const sbit_status sbit__status_ = (expr);                                                  \
        if (sbit__status_ != SBIT_OK) {                                                            \
            return sbit__status_;                                                                  \
        }                                                                                          \
    } while (0)

#define SBIT__COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#ifdef __cplusplus
extern "C" {
#endif

/* >>error: the three ways a failure is described. Each returns `status`, so that callers write
 * `return sbit__fail(error, SBIT_ERR_SHAPE, name, "...", ...)`. `where` may be NULL (empty). */
SBIT__FN sbit_status sbit__fail(sbit_error *error, sbit_status status, const char *where,
                                const char *format, ...) SBIT__PRINTF(4, 5);
SBIT__FN sbit_status sbit__fail_at(sbit_error *error, sbit_status status, uint64_t byte_offset,
                                   const char *format, ...) SBIT__PRINTF(4, 5);
SBIT__FN sbit_status sbit__fail_oom(sbit_error *error, size_t bytes);

/* >>memory: the one path to the allocator. sbit__alloc(0) gives a valid one-byte block. */
SBIT__FN sbit_allocator sbit__allocator_or_default(const sbit_allocator *allocator); /* NULL ok */
SBIT__FN bool sbit__allocator_valid(const sbit_allocator *allocator); /* all functions or none */
SBIT__FN void *sbit__alloc(const sbit_allocator *a, size_t bytes);    /* uninitialised */
SBIT__FN void *sbit__calloc(const sbit_allocator *a, size_t count, size_t bytes_each);
SBIT__FN void *sbit__realloc(const sbit_allocator *a, void *ptr, size_t old_bytes,
                             size_t new_bytes); /* ptr may be NULL with old_bytes 0 */
SBIT__FN void sbit__free(const sbit_allocator *a, void *ptr, size_t bytes); /* NULL ok */

/* 64-byte aligned blocks for tensor data and packed weights. */
SBIT__FN void *sbit__alloc_aligned(const sbit_allocator *a, size_t bytes);
SBIT__FN void sbit__free_aligned(const sbit_allocator *a, void *ptr, size_t bytes);

/* Grows *items (element size each_bytes) so that `needed` elements fit; doubles. On failure
 * everything is unchanged. Use as: sbit__grow(a, (void **)&p, &capacity, needed, sizeof *p). */
SBIT__FN sbit_status sbit__grow(const sbit_allocator *a, void **items, size_t *capacity,
                                size_t needed, size_t each_bytes, sbit_error *error);

SBIT__FN int sbit__f64_order(const void *a, const void *b); /* for qsort: of doubles, the least first */

/* An arena: many small allocations, one free. Blocks are 16-byte aligned and zeroed. */
typedef struct sbit__arena_block sbit__arena_block;
typedef struct sbit__arena {
    sbit_allocator allocator;
    sbit__arena_block *blocks; /* newest first */
    size_t used_bytes;         /* sum of all requests, for limits and statistics */
    size_t limit_bytes;        /* 0 = none */
    size_t block_bytes;        /* of a common block; 0 = growing */
} sbit__arena;

SBIT__FN void sbit__arena_init(sbit__arena *arena, const sbit_allocator *allocator);
SBIT__FN void sbit__arena_deinit(sbit__arena *arena);
SBIT__FN void *sbit__arena_alloc(sbit__arena *arena, size_t bytes); /* NULL: out of memory */
SBIT__FN void *sbit__arena_array(sbit__arena *arena, size_t count, size_t bytes_each);
SBIT__FN char *sbit__arena_strdup(sbit__arena *arena, const char *text, size_t size);
SBIT__FN char *sbit__arena_printf(sbit__arena *arena, const char *format, ...) SBIT__PRINTF(2, 3);

/* >>checked arithmetic: false on overflow, *out then untouched. */
SBIT__FN bool sbit__add_size(size_t a, size_t b, size_t *out);
SBIT__FN bool sbit__mul_size(size_t a, size_t b, size_t *out);
SBIT__FN bool sbit__add_i64(int64_t a, int64_t b, int64_t *out);
SBIT__FN bool sbit__mul_i64(int64_t a, int64_t b, int64_t *out);
SBIT__FN bool sbit__dims_count(const int64_t *dims, size_t rank, int64_t *out); /* rank 0: 1 */

/* >>text */
SBIT__FN sbit_str sbit__str(const char *text); /* view of a C string; NULL gives an empty view */
SBIT__FN bool sbit__str_eq(sbit_str a, sbit_str b);
SBIT__FN bool sbit__streq(const char *a, const char *b); /* NULL equals NULL and "" only */
SBIT__FN bool sbit__fnmatch(const char *pattern, const char *text); /* * ? [seq] [!seq] */
SBIT__FN char sbit__lower(char c);                                  /* of ASCII letters */
SBIT__FN size_t sbit__edit_distance(const char *a, const char *b);  /* in any case of letters */
/* Bits that look random, of a counter times the step and a key (splitmix64, Steele et al. 2014). */
#define SBIT__MIX64_STEP UINT64_C(0x9E3779B97F4A7C15)
SBIT__INLINE uint64_t sbit__mix64(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}
SBIT__FN uint64_t sbit__hash_bytes(const void *data, size_t size);  /* FNV-1a, 64 bits */
/* Locale-independent number parsing of the whole of `text`; false if it is not a number. */
SBIT__FN bool sbit__parse_i64(const char *text, int64_t *out);
SBIT__FN bool sbit__parse_f64(const char *text, double *out);
/* The shortest of 6, 9, 15, 17 digits that reads back as the same double (float if `single`), with
 * '.' in any locale (printf's %g does not promise that); "inf", "-inf", "nan". Gives the length. */
SBIT__FN size_t sbit__format_f64(double value, bool single, char out[40]);

/* A growing text buffer. After any append fails, `failed` stays set and appends do nothing: check
 * once at the end. `data` is always NUL-terminated once anything was appended. */
typedef struct sbit__text {
    sbit_allocator allocator;
    char *data;
    size_t size, capacity;
    bool failed;
} sbit__text;

SBIT__FN void sbit__text_init(sbit__text *text, const sbit_allocator *allocator);
SBIT__FN void sbit__text_deinit(sbit__text *text);
SBIT__FN void sbit__text_append(sbit__text *text, const char *data, size_t size);
SBIT__FN void sbit__text_printf(sbit__text *text, const char *format, ...) SBIT__PRINTF(2, 3);
SBIT__FN void sbit__text_f64(sbit__text *text, double value, bool single); /* sbit__format_f64 */

/* A hash map from text to a 32-bit index; keys are borrowed and must outlive the map. */
typedef struct sbit__map {
    sbit_allocator allocator;
    struct sbit__map_slot *cells;
    size_t capacity, count;
} sbit__map;

SBIT__FN void sbit__map_init(sbit__map *map, const sbit_allocator *allocator);
SBIT__FN void sbit__map_deinit(sbit__map *map);
SBIT__FN bool sbit__map_find(const sbit__map *map, const char *key, uint32_t *value);
SBIT__FN sbit_status sbit__map_set(sbit__map *map, const char *key, uint32_t value,
                                   sbit_error *error); /* replaces */
SBIT__FN void sbit__map_remove(sbit__map *map, const char *key);

/* >>files. A mapped (or read) file; `data` stays valid until sbit__file_close. */
typedef struct sbit__file {
    const unsigned char *data;
    size_t size;
    bool mapped; /* else allocated */
    sbit_allocator allocator;
} sbit__file;

SBIT__FN sbit_status sbit__file_open(const sbit_allocator *a, const char *path, sbit__file *out,
                                     sbit_error *error);
SBIT__FN bool sbit__file_missing(const char *path); /* nothing is there; false: who knows */
/* Maps or reads `size` bytes at `offset` only; for external data and data sets. */
SBIT__FN sbit_status sbit__file_open_range(const sbit_allocator *a, const char *path,
                                           uint64_t offset, size_t size, sbit__file *out,
                                           sbit_error *error);
SBIT__FN void sbit__file_close(sbit__file *file); /* zeroed or closed: fine */
/* Gives back the memory behind bytes of a mapped file, which are read again from it when they are
 * needed. Nothing happens if they are not in `file`, or it is not mapped. */
SBIT__FN void sbit__file_forget(const sbit__file *file, const void *data, size_t size);
/* Asks the system to serve a large block with large pages: fewer of them to make and to look up. */
SBIT__FN void sbit__pages_large(void *data, size_t size);

/* Writes to a temporary name beside `path`; commit flushes to disk and renames over `path`;
 * abort removes the temporary file. Exactly one of commit and abort ends a writer. */
typedef struct sbit__writer {
    int fd;       /* POSIX */
    void *stream; /* FILE *, elsewhere */
    char *path, *temp_path;
    size_t path_bytes, temp_path_bytes;
    unsigned char *buffer;
    size_t buffered;
    uint64_t written;
    sbit_allocator allocator;
} sbit__writer;

SBIT__FN sbit_status sbit__writer_open(const sbit_allocator *a, const char *path, sbit__writer *out,
                                       sbit_error *error);
SBIT__FN sbit_status sbit__writer_put(sbit__writer *writer, const void *data, size_t size,
                                      sbit_error *error);
SBIT__FN sbit_status sbit__writer_commit(sbit__writer *writer, sbit_error *error);
SBIT__FN void sbit__writer_abort(sbit__writer *writer);

/* >>packed: element `index` of a stream of elements of less than 8 bits each, low bits first; one
 * of 6 bits may lie in two bytes. */
SBIT__INLINE uint32_t sbit__packed_at(const void *data, int64_t index, int bits)
{
    const uint8_t *octet = (const uint8_t *)data + index * bits / 8;
    const int shift = (int)(index * bits % 8);
    const uint32_t two = octet[0] | (shift + bits > 8 ? (uint32_t)octet[1] << 8 : 0u);
    return (two >> shift) & ((1u << bits) - 1u);
}
SBIT__INLINE void sbit__packed_set(void *data, int64_t index, int bits, uint32_t value)
{
    uint8_t *octet = (uint8_t *)data + index * bits / 8;
    const int shift = (int)(index * bits % 8);
    const uint32_t mask = ((1u << bits) - 1u) << shift, placed = (value << shift) & mask;
    octet[0] = (uint8_t)((octet[0] & ~mask) | placed);
    if (shift + bits > 8) {
        octet[1] = (uint8_t)((octet[1] & ~(mask >> 8)) | placed >> 8);
    }
}

#ifdef __cplusplus
}
#endif

#endif /* SBIT_BASE_PRIVATE_H */
/* ---- end src/base/base_private.h ---- */

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && !defined(__OPTIMIZE_SIZE__)
#pragma GCC push_options
#pragma GCC optimize("O1")
#endif

/* ---- begin src/base/status.c ---- */
/* status.c: status texts and error details. >>status
 *
 * Called by: everything that fails. Calls: libc's vsnprintf.
 * Does: one text a status (from the X-macro list) and the three ways to fill a sbit_error.
 * Does not: keep any state, print, or allocate.
 */

#include <stdio.h> /* vsnprintf, snprintf */

SPARSEBIT_API const char *sbit_status_text(sbit_status status)
{
    static const struct {
        int value;
        const char *text;
    } rows[] = {
#define SBIT__STATUS_ROW(name, value, text) {value, text},
        SBIT_STATUS_LIST(SBIT__STATUS_ROW)
#undef SBIT__STATUS_ROW
    };
    for (size_t i = 0; i < SBIT__COUNT_OF(rows); i++) {
        if (rows[i].value == (int)status) {
            return rows[i].text;
        }
    }
    return "unknown status";
}

/* Formats into a buffer of its own first: arguments may be the old texts of `error` itself. */
static void sbit__status_fill(sbit_error *error, sbit_status status, const char *where,
                              const char *format, va_list args)
{
    char message[sizeof(error->message)];
    char place[sizeof(error->where)];
    size_t place_size = where != NULL ? strlen(where) : 0;
    if (place_size >= sizeof(place)) {
        place_size = sizeof(place) - 1;
    }
    if (place_size != 0) {
        memcpy(place, where, place_size);
    }
    place[place_size] = '\0';
    if (vsnprintf(message, sizeof(message), format, args) < 0) {
        message[0] = '\0';
    }
    error->status = status;
    memcpy(error->message, message, strlen(message) + 1);
    memcpy(error->where, place, place_size + 1);
}

SBIT__FN sbit_status sbit__fail(sbit_error *error, sbit_status status, const char *where,
                                const char *format, ...)
{
    if (error != NULL) {
        va_list args;
        va_start(args, format);
        sbit__status_fill(error, status, where, format, args);
        va_end(args);
    }
    return status;
}

SBIT__FN sbit_status sbit__fail_at(sbit_error *error, sbit_status status, uint64_t byte_offset,
                                   const char *format, ...)
{
    if (error != NULL) {
        char where[32];
        va_list args;
        snprintf(where, sizeof(where), "byte %llu", (unsigned long long)byte_offset);
        va_start(args, format);
        sbit__status_fill(error, status, where, format, args);
        va_end(args);
    }
    return status;
}

SBIT__FN sbit_status sbit__fail_oom(sbit_error *error, size_t bytes)
{
    return sbit__fail(error, SBIT_ERR_OUT_OF_MEMORY, NULL,
                      "out of memory: %llu bytes could not be allocated",
                      (unsigned long long)bytes);
}
/* ---- end src/base/status.c ---- */

/* ---- begin src/base/memory.c ---- */
/* memory.c: the one path to the allocator, aligned blocks, arenas, checked arithmetic. >>memory
 *
 * Called by: everything that owns memory. Calls: the user's allocator, or malloc.
 * Does: pass old sizes back to the allocator, so that it needs no headers of its own.
 * Does not: ever stop the program; NULL or `false` reports a failure.
 *
 * Aligned block:  base ... [delta] data     delta = data - base in 1..64, kept in data[-1].
 * Arena block:    [header][slack][data .... capacity]     newest first in a list.
 */

#include <stdlib.h> /* malloc, realloc, free: the default allocator */

#define SBIT__MEMORY_ALIGN 64u
#define SBIT__MEMORY_LARGE ((size_t)1 << 22)
#define SBIT__ARENA_ALIGN 16u
#define SBIT__ARENA_FIRST_BYTES ((size_t)4096)
#define SBIT__ARENA_MAX_BYTES ((size_t)1 << 20)

struct sbit__arena_block {
    sbit__arena_block *next;
    unsigned char *data; /* 16-byte aligned, inside this allocation */
    size_t capacity, used;
    size_t total_bytes; /* of this allocation, header included */
};

static void *sbit__memory_default_alloc(size_t bytes, void *user)
{
    (void)user;
    void *ptr = malloc(bytes);
    if (ptr != NULL && bytes >= SBIT__MEMORY_LARGE) {
        sbit__pages_large(ptr, bytes);
    }
    return ptr;
}

static void *sbit__memory_default_realloc(void *ptr, size_t old_bytes, size_t new_bytes, void *user)
{
    (void)old_bytes;
    (void)user;
    return realloc(ptr, new_bytes);
}

static void sbit__memory_default_free(void *ptr, size_t bytes, void *user)
{
    (void)bytes;
    (void)user;
    free(ptr);
}

SBIT__FN bool sbit__allocator_valid(const sbit_allocator *allocator)
{
    if (allocator == NULL) {
        return true;
    }
    const int set = (allocator->alloc_fn != NULL) + (allocator->realloc_fn != NULL) +
                    (allocator->free_fn != NULL);
    return set == 0 || set == 3;
}

SBIT__FN sbit_allocator sbit__allocator_or_default(const sbit_allocator *allocator)
{
    if (allocator != NULL && allocator->alloc_fn != NULL) {
        return *allocator;
    }
    sbit_allocator result;
    result.alloc_fn = sbit__memory_default_alloc;
    result.realloc_fn = sbit__memory_default_realloc;
    result.free_fn = sbit__memory_default_free;
    result.user = NULL;
    return result;
}

SBIT__FN void *sbit__alloc(const sbit_allocator *a, size_t bytes)
{
    return a->alloc_fn(bytes != 0 ? bytes : 1, a->user);
}

SBIT__FN void *sbit__calloc(const sbit_allocator *a, size_t count, size_t bytes_each)
{
    size_t bytes = 0;
    if (!sbit__mul_size(count, bytes_each, &bytes)) {
        return NULL;
    }
    void *ptr = sbit__alloc(a, bytes);
    if (ptr != NULL) {
        memset(ptr, 0, bytes);
    }
    return ptr;
}

SBIT__FN void *sbit__realloc(const sbit_allocator *a, void *ptr, size_t old_bytes, size_t new_bytes)
{
    if (ptr == NULL) {
        return sbit__alloc(a, new_bytes);
    }
    return a->realloc_fn(ptr, old_bytes != 0 ? old_bytes : 1, new_bytes != 0 ? new_bytes : 1,
                         a->user);
}

SBIT__FN void sbit__free(const sbit_allocator *a, void *ptr, size_t bytes)
{
    if (ptr != NULL) {
        a->free_fn(ptr, bytes != 0 ? bytes : 1, a->user);
    }
}

SBIT__FN void *sbit__alloc_aligned(const sbit_allocator *a, size_t bytes)
{
    size_t total = 0;
    if (!sbit__add_size(bytes, SBIT__MEMORY_ALIGN, &total)) {
        return NULL;
    }
    unsigned char *base = (unsigned char *)sbit__alloc(a, total);
    if (base == NULL) {
        return NULL;
    }
    const size_t delta = SBIT__MEMORY_ALIGN - (size_t)((uintptr_t)base & (SBIT__MEMORY_ALIGN - 1u));
    base[delta - 1] = (unsigned char)delta;
    return base + delta;
}

SBIT__FN void sbit__free_aligned(const sbit_allocator *a, void *ptr, size_t bytes)
{
    if (ptr != NULL) {
        unsigned char *data = (unsigned char *)ptr;
        sbit__free(a, data - data[-1], bytes + SBIT__MEMORY_ALIGN);
    }
}

SBIT__FN sbit_status sbit__grow(const sbit_allocator *a, void **items, size_t *capacity,
                                size_t needed, size_t each_bytes, sbit_error *error)
{
    if (needed <= *capacity) {
        return SBIT_OK;
    }
    size_t wanted = *capacity < 8 ? 8 : *capacity;
    while (wanted < needed) {
        wanted = wanted > SIZE_MAX / 2 ? needed : wanted * 2;
    }
    size_t bytes = 0;
    if (!sbit__mul_size(wanted, each_bytes, &bytes)) {
        return sbit__fail_oom(error, SIZE_MAX);
    }
    void *grown = sbit__realloc(a, *items, *capacity * each_bytes, bytes);
    if (grown == NULL) {
        return sbit__fail_oom(error, bytes);
    }
    *items = grown;
    *capacity = wanted;
    return SBIT_OK;
}

SBIT__FN int sbit__f64_order(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* ---- arena ---- */

SBIT__FN void sbit__arena_init(sbit__arena *arena, const sbit_allocator *allocator)
{
    arena->allocator = sbit__allocator_or_default(allocator);
    arena->blocks = NULL;
    arena->used_bytes = 0;
    arena->limit_bytes = 0;
    arena->block_bytes = 0;
}

SBIT__FN void sbit__arena_deinit(sbit__arena *arena)
{
    sbit__arena_block *block = arena->blocks;
    while (block != NULL) {
        sbit__arena_block *next = block->next;
        sbit__free(&arena->allocator, block, block->total_bytes);
        block = next;
    }
    arena->blocks = NULL;
    arena->used_bytes = 0;
}

static sbit__arena_block *sbit__arena_block_create(sbit__arena *arena, size_t capacity)
{
    const size_t header = sizeof(sbit__arena_block) + SBIT__ARENA_ALIGN - 1;
    size_t total = 0;
    if (!sbit__add_size(capacity, header, &total)) {
        return NULL;
    }
    sbit__arena_block *block = (sbit__arena_block *)sbit__alloc(&arena->allocator, total);
    if (block == NULL) {
        return NULL;
    }
    unsigned char *start = (unsigned char *)block + sizeof(sbit__arena_block);
    const size_t misaligned = (size_t)((uintptr_t)start & (SBIT__ARENA_ALIGN - 1u));
    block->next = NULL;
    block->data = start + (misaligned != 0 ? SBIT__ARENA_ALIGN - misaligned : 0);
    block->capacity = capacity;
    block->used = 0;
    block->total_bytes = total;
    return block;
}

/* A block that has room for `bytes`, linked into the list. Requests that would waste most of a
 * common block get one of their own behind the newest, whose free rest stays in use. */
static sbit__arena_block *sbit__arena_room(sbit__arena *arena, size_t bytes)
{
    sbit__arena_block *newest = arena->blocks;
    if (newest != NULL && newest->capacity - newest->used >= bytes) {
        return newest;
    }
    size_t common = arena->block_bytes != 0 ? arena->block_bytes : SBIT__ARENA_FIRST_BYTES;
    while (arena->block_bytes == 0 && common < SBIT__ARENA_MAX_BYTES &&
           common < arena->used_bytes) {
        common *= 2;
    }
    const bool alone = bytes > common / 4;
    sbit__arena_block *block = sbit__arena_block_create(arena, alone ? bytes : common);
    if (block == NULL) {
        return NULL;
    }
    if (alone && newest != NULL) {
        block->next = newest->next;
        newest->next = block;
    } else {
        block->next = newest;
        arena->blocks = block;
    }
    return block;
}

SBIT__FN void *sbit__arena_alloc(sbit__arena *arena, size_t bytes)
{
    size_t rounded = 0;
    size_t used = 0;
    if (!sbit__add_size(bytes != 0 ? bytes : 1, SBIT__ARENA_ALIGN - 1, &rounded)) {
        return NULL;
    }
    rounded &= ~(size_t)(SBIT__ARENA_ALIGN - 1);
    if (!sbit__add_size(arena->used_bytes, rounded, &used) ||
        (arena->limit_bytes != 0 && used > arena->limit_bytes)) {
        return NULL;
    }
    sbit__arena_block *block = sbit__arena_room(arena, rounded);
    if (block == NULL) {
        return NULL;
    }
    unsigned char *ptr = block->data + block->used;
    block->used += rounded;
    arena->used_bytes = used;
    memset(ptr, 0, rounded);
    return ptr;
}

SBIT__FN void *sbit__arena_array(sbit__arena *arena, size_t count, size_t bytes_each)
{
    size_t bytes = 0;
    return sbit__mul_size(count, bytes_each, &bytes) ? sbit__arena_alloc(arena, bytes) : NULL;
}

SBIT__FN char *sbit__arena_strdup(sbit__arena *arena, const char *text, size_t size)
{
    size_t bytes = 0;
    if (!sbit__add_size(size, 1, &bytes)) {
        return NULL;
    }
    char *copy = (char *)sbit__arena_alloc(arena, bytes);
    if (copy != NULL && size != 0) {
        memcpy(copy, text, size);
    }
    return copy;
}

/* ---- checked arithmetic ---- */

SBIT__FN bool sbit__add_size(size_t a, size_t b, size_t *out)
{
    if (a > SIZE_MAX - b) {
        return false;
    }
    *out = a + b;
    return true;
}

SBIT__FN bool sbit__mul_size(size_t a, size_t b, size_t *out)
{
    if (b != 0 && a > SIZE_MAX / b) {
        return false;
    }
    *out = a * b;
    return true;
}

SBIT__FN bool sbit__add_i64(int64_t a, int64_t b, int64_t *out)
{
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) {
        return false;
    }
    *out = a + b;
    return true;
}

SBIT__FN bool sbit__mul_i64(int64_t a, int64_t b, int64_t *out)
{
    if (a == 0 || b == 0) {
        *out = 0;
        return true;
    }
    if (a == -1 || b == -1) { /* INT64_MIN / -1 itself overflows */
        const int64_t other = a == -1 ? b : a;
        if (other == INT64_MIN) {
            return false;
        }
        *out = -other;
        return true;
    }
    const bool negative = (a < 0) != (b < 0);
    const int64_t bound = (negative ? INT64_MIN : INT64_MAX) / b;
    if (b > 0 ? (negative ? a < bound : a > bound) : (negative ? a > bound : a < bound)) {
        return false;
    }
    *out = a * b;
    return true;
}

/* Overflow is looked for in the product of the non-zero dims, so that strides of an empty tensor
 * are safe to compute as well. */
SBIT__FN bool sbit__dims_count(const int64_t *dims, size_t rank, int64_t *out)
{
    int64_t count = 1;
    bool empty = false;
    for (size_t i = 0; i < rank; i++) {
        if (dims[i] < 0) {
            return false;
        }
        if (dims[i] == 0) {
            empty = true;
        } else if (!sbit__mul_i64(count, dims[i], &count)) {
            return false;
        }
    }
    *out = empty ? 0 : count;
    return true;
}
#undef SBIT__MEMORY_ALIGN
#undef SBIT__ARENA_ALIGN
#undef SBIT__ARENA_FIRST_BYTES
#undef SBIT__ARENA_MAX_BYTES
/* ---- end src/base/memory.c ---- */

/* ---- begin src/base/text.c ---- */
/* text.c: text views, matching, number parsing, growing text, hash map. >>text
 *
 * Called by: everything. Calls: memory, libc's strtod and vsnprintf.
 * Does: read and write numbers with '.' as the decimal point whatever setlocale() says.
 * Does not: know any encoding: bytes are compared as they are.
 */

#define SBIT__TEXT_NUMBER_BYTES 512 /* longest decimal number that is parsed */
#define SBIT__TEXT_DISTANCE_BYTES 128

SBIT__FN sbit_str sbit__str(const char *text)
{
    sbit_str view;
    view.data = text;
    view.size = text != NULL ? strlen(text) : 0;
    return view;
}

SBIT__FN bool sbit__str_eq(sbit_str a, sbit_str b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

SBIT__FN bool sbit__streq(const char *a, const char *b)
{
    return strcmp(a != NULL ? a : "", b != NULL ? b : "") == 0;
}

/* Matches one bracket expression that starts behind '['. Returns the pattern behind ']', or NULL
 * if there is no ']' (then '[' stands for itself, as in Python's fnmatch). */
static const char *sbit__text_bracket(const char *p, char c, bool *matched)
{
    const bool negated = *p == '!';
    bool found = false;
    p += negated ? 1 : 0;
    for (const char *first = p; *p != ']' || p == first;) {
        if (*p == '\0') {
            return NULL;
        }
        const unsigned char low = (unsigned char)*p;
        unsigned char high = low;
        p++;
        if (p[0] == '-' && p[1] != ']' && p[1] != '\0') {
            high = (unsigned char)p[1];
            p += 2;
        }
        found = found || ((unsigned char)c >= low && (unsigned char)c <= high);
    }
    *matched = found != negated;
    return p + 1;
}

/* Matches one non-star pattern element against c; returns the pattern behind it, NULL: no match. */
static const char *sbit__text_match_one(const char *p, char c)
{
    if (*p == '?') {
        return p + 1;
    }
    if (*p == '[') {
        bool matched = false;
        const char *behind = sbit__text_bracket(p + 1, c, &matched);
        if (behind != NULL) {
            return matched ? behind : NULL;
        }
    }
    return *p == c ? p + 1 : NULL;
}

/* Only the last star needs to be tried again: time is at most pattern times text length. */
SBIT__FN bool sbit__fnmatch(const char *pattern, const char *text)
{
    const char *star = NULL;
    const char *retry = NULL;
    while (*text != '\0') {
        if (*pattern == '*') {
            star = ++pattern;
            retry = text;
            continue;
        }
        const char *behind = *pattern != '\0' ? sbit__text_match_one(pattern, *text) : NULL;
        if (behind != NULL) {
            pattern = behind;
            text++;
        } else if (star != NULL) {
            pattern = star;
            text = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*') {
        pattern++;
    }
    return *pattern == '\0';
}

SBIT__FN char sbit__lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Levenshtein distance with one row on the stack; overlong texts count as wholly different. */
SBIT__FN size_t sbit__edit_distance(const char *a, const char *b)
{
    const size_t a_size = strlen(a);
    const size_t b_size = strlen(b);
    size_t row[SBIT__TEXT_DISTANCE_BYTES];
    if (a_size >= SBIT__TEXT_DISTANCE_BYTES || b_size >= SBIT__TEXT_DISTANCE_BYTES) {
        return a_size > b_size ? a_size : b_size;
    }
    for (size_t j = 0; j <= b_size; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_size; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            const size_t above = row[j];
            const bool same = sbit__lower(a[i - 1]) == sbit__lower(b[j - 1]);
            size_t best = diagonal + (same ? 0 : 1);
            best = above + 1 < best ? above + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            row[j] = best;
            diagonal = above;
        }
    }
    return row[b_size];
}

SPARSEBIT_API const char *sbit_word_nearest(const char *text, const char *const *words,
                                            size_t count)
{
    const size_t size = strlen(text);
    const char *best = NULL;
    size_t least = 1 + (size / 2 < 3 ? size / 2 : 3); /* edits allowed + 1 */
    for (size_t i = 0; i < count; i++) {
        const size_t distance = sbit__edit_distance(text, words[i]);
        if (distance < least) {
            least = distance;
            best = words[i];
        }
    }
    for (size_t i = 0; i < count && best == NULL; i++) {
        best = size >= 3 && strncmp(text, words[i], size) == 0 ? words[i] : NULL;
    }
    return best;
}

SBIT__FN uint64_t sbit__hash_bytes(const void *data, size_t size)
{
    const unsigned char *bytes = (const unsigned char *)data;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++) {
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* ---- numbers ---- */

static bool sbit__text_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

SBIT__FN bool sbit__parse_i64(const char *text, int64_t *out)
{
    const bool negative = *text == '-';
    const uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    uint64_t value = 0;
    text += *text == '-' || *text == '+' ? 1 : 0;
    if (*text == '\0') {
        return false;
    }
    for (; *text != '\0'; text++) {
        const uint64_t digit = (uint64_t)(*text - '0');
        if (!sbit__text_is_digit(*text) || value > (limit - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    /* -(value - 1) - 1 stays in range for INT64_MIN */
    *out = negative && value != 0 ? -(int64_t)(value - 1) - 1 : (int64_t)value;
    return true;
}

/* Case-insensitive comparison with a lower-case ASCII word. */
static bool sbit__text_is_word(const char *text, const char *word)
{
    for (; *text != '\0' && sbit__lower(*text) == *word; text++, word++) {
    }
    return *text == *word;
}

/* digits [. digits] [e [sign] digits] with at least one digit before the exponent */
static bool sbit__text_is_decimal(const char *p)
{
    size_t digits = 0;
    for (; sbit__text_is_digit(*p); p++) {
        digits++;
    }
    if (*p == '.') {
        for (p++; sbit__text_is_digit(*p); p++) {
            digits++;
        }
    }
    if (digits == 0) {
        return false;
    }
    if (*p == 'e' || *p == 'E') {
        p++;
        p += *p == '-' || *p == '+' ? 1 : 0;
        if (!sbit__text_is_digit(*p)) {
            return false;
        }
        while (sbit__text_is_digit(*p)) {
            p++;
        }
    }
    return *p == '\0';
}

/* What the current locale writes between "1" and "5" of 1.5; strtod reads the same. */
static void sbit__text_decimal_point(char point[8])
{
    char sample[16];
    const int size = snprintf(sample, sizeof(sample), "%.1f", 1.5);
    memcpy(point, ".", 2);
    if (size >= 3 && size < 10) {
        memcpy(point, sample + 1, (size_t)size - 2);
        point[size - 2] = '\0';
    }
}

SBIT__FN bool sbit__parse_f64(const char *text, double *out)
{
    char buffer[SBIT__TEXT_NUMBER_BYTES + 8];
    char point[8];
    const char *digits = text + (*text == '-' || *text == '+' ? 1 : 0);
    const size_t size = strlen(text);
    if (sbit__text_is_word(digits, "inf") || sbit__text_is_word(digits, "infinity")) {
        const uint64_t bits = UINT64_C(0x7ff0000000000000) | ((uint64_t)(*text == '-') << 63);
        memcpy(out, &bits, sizeof(*out));
        return true;
    }
    if (sbit__text_is_word(digits, "nan")) {
        const uint64_t bits = UINT64_C(0x7ff8000000000000);
        memcpy(out, &bits, sizeof(*out));
        return true;
    }
    if (size > SBIT__TEXT_NUMBER_BYTES || !sbit__text_is_decimal(digits)) {
        return false;
    }
    sbit__text_decimal_point(point);
    const char *dot = strchr(text, '.');
    const size_t head = dot != NULL ? (size_t)(dot - text) : size;
    const size_t point_size = dot != NULL ? strlen(point) : 0;
    memcpy(buffer, text, head);
    memcpy(buffer + head, point, point_size);
    memcpy(buffer + head + point_size, dot != NULL ? dot + 1 : "", dot != NULL ? size - head : 1);
    *out = strtod(buffer, NULL);
    return true;
}

SBIT__FN size_t sbit__format_f64(double value, bool single, char out[40])
{
    const int precisions[] = {6, 9, 15, 17};
    char point[8];
    if (value != value || value - value != 0.0) {
        memcpy(out, value != value ? "nan" : value > 0 ? "inf" : "-inf", value < 0 ? 5 : 4);
        return strlen(out);
    }
    for (size_t i = 0; i < SBIT__COUNT_OF(precisions); i++) {
        snprintf(out, 40, "%.*g", precisions[i], value);
        const double back = strtod(out, NULL);
        if (single ? (float)back == (float)value : back == value) {
            break;
        }
    }
    sbit__text_decimal_point(point);
    char *found = strstr(out, point);
    if (found != NULL && strcmp(point, ".") != 0) {
        const size_t rest = strlen(found + strlen(point));
        memmove(found + 1, found + strlen(point), rest + 1);
        *found = '.';
    }
    return strlen(out);
}

/* ---- growing text ---- */

SBIT__FN void sbit__text_init(sbit__text *text, const sbit_allocator *allocator)
{
    text->allocator = sbit__allocator_or_default(allocator);
    text->data = NULL;
    text->size = 0;
    text->capacity = 0;
    text->failed = false;
}

SBIT__FN void sbit__text_deinit(sbit__text *text)
{
    sbit__free(&text->allocator, text->data, text->capacity);
    text->data = NULL;
    text->size = 0;
    text->capacity = 0;
}

/* Makes room for `size` more bytes and the NUL. */
static bool sbit__text_reserve(sbit__text *text, size_t size)
{
    size_t needed = 0;
    void *items = text->data;
    if (text->failed || !sbit__add_size(text->size, size, &needed) ||
        !sbit__add_size(needed, 1, &needed) ||
        sbit__grow(&text->allocator, &items, &text->capacity, needed, 1, NULL) != SBIT_OK) {
        text->failed = true;
        return false;
    }
    text->data = (char *)items;
    return true;
}

SBIT__FN void sbit__text_append(sbit__text *text, const char *data, size_t size)
{
    if (!sbit__text_reserve(text, size)) {
        return;
    }
    if (size != 0) {
        memcpy(text->data + text->size, data, size);
    }
    text->size += size;
    text->data[text->size] = '\0';
}

SBIT__FN void sbit__text_f64(sbit__text *text, double value, bool single)
{
    char number[40];
    const size_t size = sbit__format_f64(value, single, number);
    sbit__text_append(text, number, size);
}

SBIT__FN void sbit__text_printf(sbit__text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (size < 0 || !sbit__text_reserve(text, (size_t)size)) {
        text->failed = true;
        return;
    }
    va_start(args, format);
    vsnprintf(text->data + text->size, (size_t)size + 1, format, args);
    va_end(args);
    text->size += (size_t)size;
}

SBIT__FN char *sbit__arena_printf(sbit__arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *out = size >= 0 ? (char *)sbit__arena_alloc(arena, (size_t)size + 1) : NULL;
    if (out != NULL) {
        va_start(args, format);
        vsnprintf(out, (size_t)size + 1, format, args);
        va_end(args);
    }
    return out;
}

/* ---- hash map: open addressing, power-of-two capacity, at most 3/4 full ---- */

struct sbit__map_slot {
    const char *key; /* NULL: free */
    uint64_t hash;
    uint32_t value;
};

SBIT__FN void sbit__map_init(sbit__map *map, const sbit_allocator *allocator)
{
    map->allocator = sbit__allocator_or_default(allocator);
    map->cells = NULL;
    map->capacity = 0;
    map->count = 0;
}

SBIT__FN void sbit__map_deinit(sbit__map *map)
{
    sbit__free(&map->allocator, map->cells, map->capacity * sizeof(struct sbit__map_slot));
    map->cells = NULL;
    map->capacity = 0;
    map->count = 0;
}

/* FNV-1a's low bits are weak for short keys; folding the high half in spreads them. */
static uint64_t sbit__map_hash(const char *key)
{
    const uint64_t hash = sbit__hash_bytes(key, strlen(key));
    return hash ^ (hash >> 32);
}

/* The slot that holds `key`, or the free one where it belongs. Needs capacity > count. */
static size_t sbit__map_slot_of(const sbit__map *map, const char *key, uint64_t hash)
{
    size_t i = (size_t)hash & (map->capacity - 1);
    while (map->cells[i].key != NULL &&
           (map->cells[i].hash != hash || strcmp(map->cells[i].key, key) != 0)) {
        i = (i + 1) & (map->capacity - 1);
    }
    return i;
}

SBIT__FN bool sbit__map_find(const sbit__map *map, const char *key, uint32_t *value)
{
    if (map->count == 0) {
        return false;
    }
    const size_t i = sbit__map_slot_of(map, key, sbit__map_hash(key));
    if (map->cells[i].key == NULL) {
        return false;
    }
    if (value != NULL) {
        *value = map->cells[i].value;
    }
    return true;
}

static sbit_status sbit__map_enlarge(sbit__map *map, sbit_error *error)
{
    const size_t old_capacity = map->capacity;
    struct sbit__map_slot *old_slots = map->cells;
    size_t capacity = 0;
    if (!sbit__mul_size(old_capacity != 0 ? old_capacity : 8, 2, &capacity)) {
        return sbit__fail_oom(error, SIZE_MAX);
    }
    struct sbit__map_slot *cells = (struct sbit__map_slot *)sbit__calloc(
        &map->allocator, capacity, sizeof(struct sbit__map_slot));
    if (cells == NULL) {
        return sbit__fail_oom(error, capacity * sizeof(struct sbit__map_slot));
    }
    map->cells = cells;
    map->capacity = capacity;
    for (size_t i = 0; i < old_capacity; i++) {
        if (old_slots[i].key != NULL) {
            cells[sbit__map_slot_of(map, old_slots[i].key, old_slots[i].hash)] = old_slots[i];
        }
    }
    sbit__free(&map->allocator, old_slots, old_capacity * sizeof(struct sbit__map_slot));
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__map_set(sbit__map *map, const char *key, uint32_t value,
                                   sbit_error *error)
{
    if (map->count >= map->capacity - map->capacity / 4) {
        SBIT__TRY(sbit__map_enlarge(map, error));
    }
    const uint64_t hash = sbit__map_hash(key);
    struct sbit__map_slot *slot = &map->cells[sbit__map_slot_of(map, key, hash)];
    map->count += slot->key == NULL ? 1 : 0;
    slot->key = key;
    slot->hash = hash;
    slot->value = value;
    return SBIT_OK;
}

/* Moves later entries of the probe chain back into the hole, so that no tombstones are needed. */
SBIT__FN void sbit__map_remove(sbit__map *map, const char *key)
{
    if (map->count == 0) {
        return;
    }
    const size_t mask = map->capacity - 1;
    size_t hole = sbit__map_slot_of(map, key, sbit__map_hash(key));
    if (map->cells[hole].key == NULL) {
        return;
    }
    for (size_t i = (hole + 1) & mask; map->cells[i].key != NULL; i = (i + 1) & mask) {
        const size_t home = (size_t)map->cells[i].hash & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            map->cells[hole] = map->cells[i];
            hole = i;
        }
    }
    map->cells[hole].key = NULL;
    map->count--;
}
#undef SBIT__TEXT_NUMBER_BYTES
#undef SBIT__TEXT_DISTANCE_BYTES
/* ---- end src/base/text.c ---- */

/* ---- begin src/base/file.c ---- */
/* file.c: whole files and ranges mapped or read, and files replaced in one step. >>file
 *
 * Called by: onnx, config, data sets. Calls: the operating system; nowhere else does.
 * POSIX: open/mmap/write/fsync/rename. Elsewhere: C's stdio, files are read into memory.
 * Writing goes to "<path>.sbit-tmp" (a number is appended if that exists) and is renamed at commit,
 * so that a reader sees the old file or the whole new one; a symbolic link stays and its target is
 * replaced, and what is no regular file (a device, a pipe) is refused. A mapped file that somebody
 * else cuts short faults on access, as with every use of mmap: replace files by renaming.
 */

#if !SPARSEBIT_NO_FILES
#include <errno.h> /* the reason a call failed, for the message only */
#if !defined(_WIN32) && (defined(__unix__) || defined(__APPLE__) || defined(__HAIKU__))
#define SBIT__FILE_POSIX 1
#include <fcntl.h>    /* open */
#include <sys/stat.h> /* fstat, stat */
#include <unistd.h>   /* read, write, lseek, close, sysconf */
#if !SPARSEBIT_NO_MMAP
#include <sys/mman.h> /* mmap, munmap */
#endif
#else
#define SBIT__FILE_POSIX 0
#endif

#define SBIT__FILE_BUFFER_BYTES ((size_t)1 << 16)
#define SBIT__FILE_CHUNK_BYTES ((size_t)1 << 30) /* per system call: some stop at 2 GiB */
#define SBIT__FILE_TEMP_TRIES 100
#define SBIT__FILE_LINK_TRIES 40 /* symbolic links in a row; Linux allows as many */
#ifdef O_CLOEXEC                 /* strict -std=c99 hides it */
#define SBIT__FILE_CLOEXEC O_CLOEXEC
#else
#define SBIT__FILE_CLOEXEC 0
#endif

#if SBIT__FILE_POSIX
#ifdef __cplusplus
extern "C" {
#endif
int fsync(int fd); /* POSIX.1-2001; strict -std=c99 hides unistd.h's own declaration */
#ifdef __cplusplus
}
#else
ssize_t readlink(const char *path, char *to, size_t size); /* likewise; C++ shows it */
#endif
#endif

#if SBIT__FILE_POSIX && !SPARSEBIT_NO_MMAP && defined(__linux__)
#ifndef __cplusplus
int madvise(void *data, size_t size, int advice); /* strict -std=c99 hides it, and its numbers */
#endif
#define SBIT__PAGES_FORGET 4
#define SBIT__PAGES_LARGE 14
#endif

static const char *sbit__file_reason(int code)
{
    switch (code) {
#ifdef ENOENT
    case ENOENT:
        return "no such file or folder";
#endif
#ifdef EACCES
    case EACCES:
        return "permission denied";
#endif
#ifdef EISDIR
    case EISDIR:
        return "it is a folder";
#endif
#ifdef ENOTDIR
    case ENOTDIR:
        return "a part of the path is not a folder";
#endif
#ifdef ENOSPC
    case ENOSPC:
        return "no space left on the device";
#endif
#ifdef EROFS
    case EROFS:
        return "the file system is read-only";
#endif
#ifdef EMFILE
    case EMFILE:
        return "too many open files";
#endif
#ifdef ENOMEM
    case ENOMEM:
        return "not enough memory";
#endif
    default:
        return "input/output error";
    }
}

static sbit_status sbit__file_fail(sbit_error *error, const char *path, const char *what, int code)
{
    return sbit__fail(error, SBIT_ERR_IO, path, "file '%.300s' cannot be %s: %s", path, what,
                      sbit__file_reason(code));
}

SBIT__FN bool sbit__file_missing(const char *path)
{
#if SBIT__FILE_POSIX
    struct stat info;
    return stat(path, &info) != 0 && errno == ENOENT;
#else
    FILE *stream = fopen(path, "rb");
    const int code = errno;
    if (stream != NULL) {
        fclose(stream);
    }
#ifdef ENOENT
    return stream == NULL && code == ENOENT;
#else
    (void)code;
    return false;
#endif
#endif
}

/* An empty file has data too: callers may form pointers into it. */
static void sbit__file_set(sbit__file *out, const sbit_allocator *a, const unsigned char *data,
                           size_t size, bool mapped)
{
    static const unsigned char empty[1] = {0};
    out->data = size != 0 ? data : empty;
    out->size = size;
    out->mapped = mapped;
    out->allocator = *a;
}

/* One open file for reading: `handle` on POSIX, `stream` elsewhere. */
typedef struct sbit__file_source {
    const char *path;
    uint64_t size; /* UINT64_MAX: not known (a pipe) */
#if SBIT__FILE_POSIX
    int handle;
#else
    FILE *stream;
#endif
} sbit__file_source;

#if SBIT__FILE_POSIX

static sbit_status sbit__file_source_open(const char *path, sbit__file_source *source,
                                          sbit_error *error)
{
    struct stat info;
    source->path = path;
    source->handle = open(path, O_RDONLY | SBIT__FILE_CLOEXEC);
    if (source->handle < 0) {
        return sbit__file_fail(error, path, "opened", errno);
    }
    if (fstat(source->handle, &info) != 0 || S_ISDIR(info.st_mode)) {
        const int code = S_ISDIR(info.st_mode) ? EISDIR : errno;
        close(source->handle);
        return sbit__file_fail(error, path, "read", code);
    }
    source->size = S_ISREG(info.st_mode) && info.st_size >= 0 ? (uint64_t)info.st_size : UINT64_MAX;
    return SBIT_OK;
}

static void sbit__file_source_close(sbit__file_source *source)
{
    close(source->handle);
}

/* Reads up to `size` bytes; fewer only at the end of the file. */
static bool sbit__file_source_read(sbit__file_source *source, unsigned char *to, size_t size,
                                   size_t *got)
{
    *got = 0;
    while (*got < size) {
        const size_t want =
            size - *got < SBIT__FILE_CHUNK_BYTES ? size - *got : SBIT__FILE_CHUNK_BYTES;
        const ssize_t count = read(source->handle, to + *got, want);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return count == 0;
        }
        *got += (size_t)count;
    }
    return true;
}

static bool sbit__file_source_seek(sbit__file_source *source, uint64_t offset)
{
    const off_t position = (off_t)offset;
    return position >= 0 && (uint64_t)position == offset &&
           lseek(source->handle, position, SEEK_SET) == position;
}

#if !SPARSEBIT_NO_MMAP
static size_t sbit__file_page_bytes(void)
{
    const long bytes = sysconf(_SC_PAGESIZE);
    return bytes > 0 ? (size_t)bytes : 4096;
}

/* False: mapping is not possible here, reading may be. */
static bool sbit__file_source_map(sbit__file_source *source, uint64_t offset, size_t size,
                                  const unsigned char **data)
{
    const size_t lead = (size_t)(offset & (sbit__file_page_bytes() - 1));
    const off_t position = (off_t)(offset - lead);
    size_t bytes = 0;
    if (size == 0 || !sbit__add_size(size, lead, &bytes) || position < 0 ||
        (uint64_t)position != offset - lead) {
        return false;
    }
    void *base = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, source->handle, position);
    if (base == MAP_FAILED) {
        return false;
    }
    *data = (const unsigned char *)base + lead;
    return true;
}
#endif

#else /* stdio */

static sbit_status sbit__file_source_open(const char *path, sbit__file_source *source,
                                          sbit_error *error)
{
    source->path = path;
    source->size = UINT64_MAX; /* ftell's long cannot hold every size */
    source->stream = fopen(path, "rb");
    return source->stream != NULL ? SBIT_OK : sbit__file_fail(error, path, "opened", errno);
}

static void sbit__file_source_close(sbit__file_source *source)
{
    fclose(source->stream);
}

static bool sbit__file_source_read(sbit__file_source *source, unsigned char *to, size_t size,
                                   size_t *got)
{
    *got = fread(to, 1, size, source->stream);
    return *got == size || ferror(source->stream) == 0;
}

/* In steps that fit a 32-bit long. */
static bool sbit__file_source_seek(sbit__file_source *source, uint64_t offset)
{
    if (fseek(source->stream, 0, SEEK_SET) != 0) {
        return false;
    }
    while (offset != 0) {
        const uint64_t step = offset < SBIT__FILE_CHUNK_BYTES ? offset : SBIT__FILE_CHUNK_BYTES;
        if (fseek(source->stream, (long)step, SEEK_CUR) != 0) {
            return false;
        }
        offset -= step;
    }
    return true;
}

#endif

/* Reads `size` bytes from here into one allocation. */
static sbit_status sbit__file_read_exact(const sbit_allocator *a, sbit__file_source *source,
                                         size_t size, sbit__file *out, sbit_error *error)
{
    size_t got = 0;
    if (size == 0) {
        sbit__file_set(out, a, NULL, 0, false);
        return SBIT_OK;
    }
    unsigned char *data = (unsigned char *)sbit__alloc(a, size);
    if (data == NULL) {
        return sbit__fail_oom(error, size);
    }
    if (!sbit__file_source_read(source, data, size, &got) || got != size) {
        sbit__free(a, data, size);
        return sbit__fail(error, SBIT_ERR_IO, source->path,
                          "file '%.300s' ends before %llu bytes could be read", source->path,
                          (unsigned long long)size);
    }
    sbit__file_set(out, a, data, size, false);
    return SBIT_OK;
}

/* Reads to the end of a file of unknown size. */
static sbit_status sbit__file_read_rest(const sbit_allocator *a, sbit__file_source *source,
                                        sbit__file *out, sbit_error *error)
{
    void *data = NULL;
    size_t size = 0;
    size_t capacity = 0;
    for (;;) {
        size_t got = 0;
        const sbit_status status =
            sbit__grow(a, &data, &capacity, size + SBIT__FILE_BUFFER_BYTES, 1, error);
        if (status != SBIT_OK) {
            sbit__free(a, data, capacity);
            return status;
        }
        if (!sbit__file_source_read(source, (unsigned char *)data + size, capacity - size, &got)) {
            sbit__free(a, data, capacity);
            return sbit__file_fail(error, source->path, "read", errno);
        }
        size += got;
        if (size < capacity) {
            break;
        }
    }
    if (size == 0) {
        sbit__free(a, data, capacity);
        sbit__file_set(out, a, NULL, 0, false);
        return SBIT_OK;
    }
    void *exact = sbit__realloc(a, data, capacity, size);
    if (exact == NULL) {
        sbit__free(a, data, capacity);
        return sbit__fail_oom(error, size);
    }
    sbit__file_set(out, a, (const unsigned char *)exact, size, false);
    return SBIT_OK;
}

static sbit_status sbit__file_take_range(const sbit_allocator *a, sbit__file_source *source,
                                         uint64_t offset, size_t size, sbit__file *out,
                                         sbit_error *error)
{
#if SBIT__FILE_POSIX && !SPARSEBIT_NO_MMAP
    const unsigned char *data = NULL;
    if (source->size != UINT64_MAX && sbit__file_source_map(source, offset, size, &data)) {
        sbit__file_set(out, a, data, size, true);
        return SBIT_OK;
    }
#endif
    if (offset != 0 && !sbit__file_source_seek(source, offset)) {
        return sbit__file_fail(error, source->path, "positioned", errno);
    }
    return sbit__file_read_exact(a, source, size, out, error);
}

SBIT__FN sbit_status sbit__file_open(const sbit_allocator *a, const char *path, sbit__file *out,
                                     sbit_error *error)
{
    sbit__file_source source;
    SBIT__TRY(sbit__file_source_open(path, &source, error));
    sbit_status status = SBIT_OK;
    if (source.size == UINT64_MAX) {
        status = sbit__file_read_rest(a, &source, out, error);
    } else if (source.size > SIZE_MAX / 2) {
        status = sbit__fail(error, SBIT_ERR_LIMIT, path,
                            "file '%.300s' of %llu bytes exceeds the address space", path,
                            (unsigned long long)source.size);
    } else {
        status = sbit__file_take_range(a, &source, 0, (size_t)source.size, out, error);
    }
    sbit__file_source_close(&source);
    return status;
}

SBIT__FN sbit_status sbit__file_open_range(const sbit_allocator *a, const char *path,
                                           uint64_t offset, size_t size, sbit__file *out,
                                           sbit_error *error)
{
    sbit__file_source source;
    SBIT__TRY(sbit__file_source_open(path, &source, error));
    sbit_status status = SBIT_OK;
    if (offset > source.size || size > source.size - offset) {
        status = sbit__fail(error, SBIT_ERR_IO, path,
                            "file '%.300s' has %llu bytes, too few for %llu bytes at offset %llu",
                            path, (unsigned long long)source.size, (unsigned long long)size,
                            (unsigned long long)offset);
    } else {
        status = sbit__file_take_range(a, &source, offset, size, out, error);
    }
    sbit__file_source_close(&source);
    return status;
}

/* munmap and free take plain pointers, although nobody writes through them. */
static void *sbit__file_unconst(const unsigned char *data)
{
    void *plain = NULL;
    memcpy(&plain, &data, sizeof(plain));
    return plain;
}

SBIT__FN void sbit__file_close(sbit__file *file)
{
    if (file->size != 0) {
        unsigned char *data = (unsigned char *)sbit__file_unconst(file->data);
#if SBIT__FILE_POSIX && !SPARSEBIT_NO_MMAP
        if (file->mapped) {
            const size_t lead = (size_t)((uintptr_t)data & (sbit__file_page_bytes() - 1));
            munmap(data - lead, file->size + lead);
            data = NULL;
        }
#endif
        sbit__free(&file->allocator, data, file->size);
    }
    file->data = NULL;
    file->size = 0;
    file->mapped = false;
}

/* ---- writing ---- */

#if SBIT__FILE_POSIX

/* Replaces writer->path by what it leads to, if it is a symbolic link: that file is written. */
static bool sbit__writer_follow(sbit__writer *writer)
{
    char *target = (char *)writer->buffer;
    for (int i = 0; i < SBIT__FILE_LINK_TRIES; i++) {
        const ssize_t got = readlink(writer->path, target, SBIT__FILE_BUFFER_BYTES);
        if (got <= 0 || (size_t)got >= SBIT__FILE_BUFFER_BYTES) {
            return true; /* no link */
        }
        const char *slash = target[0] != '/' ? strrchr(writer->path, '/') : NULL;
        const size_t folder = slash != NULL ? (size_t)(slash - writer->path) + 1 : 0;
        const size_t bytes = folder + (size_t)got + 1;
        char *path = (char *)sbit__realloc(&writer->allocator, writer->path, writer->path_bytes,
                                           bytes > writer->path_bytes ? bytes : writer->path_bytes);
        if (path == NULL) {
            return false;
        }
        writer->path_bytes = bytes > writer->path_bytes ? bytes : writer->path_bytes;
        memcpy(path + folder, target, (size_t)got);
        path[folder + (size_t)got] = '\0';
        writer->path = path;
    }
    return true; /* a circle: see sbit__writer_obstacle */
}

/* Why `path` cannot be replaced by a file; NULL: nothing is in the way. */
static const char *sbit__writer_obstacle(const char *path)
{
    struct stat old;
    if (stat(path, &old) != 0) {
        return errno == ELOOP ? "its symbolic links lead in a circle" : NULL;
    }
    if (S_ISREG(old.st_mode)) {
        return NULL;
    }
    return S_ISDIR(old.st_mode) ? "it is a folder" : "it is no regular file";
}

/* A file that is replaced keeps its permissions; a new one gets the usual ones (umask applies). */
static bool sbit__writer_create(sbit__writer *writer)
{
    struct stat old;
    const mode_t mode = stat(writer->path, &old) == 0 ? (mode_t)(old.st_mode & 0777) : (mode_t)0666;
    writer->fd = open(writer->temp_path, O_WRONLY | O_CREAT | O_EXCL | SBIT__FILE_CLOEXEC,
                      mode | (mode_t)0200);
    return writer->fd >= 0;
}

static bool sbit__writer_raw(sbit__writer *writer, const unsigned char *data, size_t size)
{
    while (size != 0) {
        const size_t want = size < SBIT__FILE_CHUNK_BYTES ? size : SBIT__FILE_CHUNK_BYTES;
        const ssize_t count = write(writer->fd, data, want);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return false;
        }
        data += count;
        size -= (size_t)count;
    }
    return true;
}

static bool sbit__writer_finish(sbit__writer *writer)
{
    const bool synced = fsync(writer->fd) == 0 || errno == EINVAL; /* EINVAL: not a disk file */
    return close(writer->fd) == 0 && synced;
}

static bool sbit__writer_replace(const char *from, const char *to)
{
    return rename(from, to) == 0;
}

static void sbit__writer_drop(sbit__writer *writer)
{
    close(writer->fd);
}

#else /* stdio */

static bool sbit__writer_follow(sbit__writer *writer)
{
    return writer->path != NULL;
}

static const char *sbit__writer_obstacle(const char *path)
{
    (void)path;
    return NULL;
}

/* C99 has no exclusive creation: a name that can be opened for reading counts as taken. */
static bool sbit__writer_create(sbit__writer *writer)
{
    FILE *existing = fopen(writer->temp_path, "rb");
    if (existing != NULL) {
        fclose(existing);
#ifdef EEXIST
        errno = EEXIST;
#endif
        return false;
    }
    writer->stream = fopen(writer->temp_path, "wb");
    return writer->stream != NULL;
}

static bool sbit__writer_raw(sbit__writer *writer, const unsigned char *data, size_t size)
{
    return size == 0 || fwrite(data, 1, size, (FILE *)writer->stream) == size;
}

static bool sbit__writer_finish(sbit__writer *writer)
{
    return fclose((FILE *)writer->stream) == 0;
}

/* Windows' rename refuses an existing target, which then goes first. "r+b" opens no folders. */
static bool sbit__writer_replace(const char *from, const char *to)
{
    if (rename(from, to) == 0) {
        return true;
    }
    FILE *existing = fopen(to, "r+b");
    if (existing == NULL) {
        return false;
    }
    fclose(existing);
    return remove(to) == 0 && rename(from, to) == 0;
}

static void sbit__writer_drop(sbit__writer *writer)
{
    fclose((FILE *)writer->stream);
}

#endif

static void sbit__writer_release(sbit__writer *writer)
{
    sbit__free(&writer->allocator, writer->path, writer->path_bytes);
    sbit__free(&writer->allocator, writer->temp_path, writer->temp_path_bytes);
    sbit__free(&writer->allocator, writer->buffer, SBIT__FILE_BUFFER_BYTES);
    writer->path = NULL;
    writer->temp_path = NULL;
    writer->buffer = NULL;
}

static bool sbit__writer_create_unique(sbit__writer *writer)
{
    for (int i = 0; i < SBIT__FILE_TEMP_TRIES; i++) {
        snprintf(writer->temp_path, writer->temp_path_bytes,
                 i == 0 ? "%s.sbit-tmp" : "%s.sbit-tmp%d", writer->path, i);
        if (sbit__writer_create(writer)) {
            return true;
        }
#ifdef EEXIST
        if (errno != EEXIST) {
            return false;
        }
#endif
    }
    return false;
}

/* Allocates; false: out of memory. */
static bool sbit__writer_paths(sbit__writer *writer, const char *path)
{
    writer->path_bytes = strlen(path) + 1;
    writer->path = (char *)sbit__alloc(&writer->allocator, writer->path_bytes);
    writer->buffer = (unsigned char *)sbit__alloc(&writer->allocator, SBIT__FILE_BUFFER_BYTES);
    if (writer->path == NULL || writer->buffer == NULL) {
        return false;
    }
    memcpy(writer->path, path, writer->path_bytes);
    if (!sbit__writer_follow(writer)) {
        return false;
    }
    writer->temp_path_bytes = strlen(writer->path) + 17;
    writer->temp_path = (char *)sbit__alloc(&writer->allocator, writer->temp_path_bytes);
    return writer->temp_path != NULL;
}

SBIT__FN sbit_status sbit__writer_open(const sbit_allocator *a, const char *path, sbit__writer *out,
                                       sbit_error *error)
{
    sbit__writer writer;
    memset(&writer, 0, sizeof(writer));
    writer.allocator = *a;
    if (!sbit__writer_paths(&writer, path)) {
        sbit__writer_release(&writer);
        return sbit__fail_oom(error, SBIT__FILE_BUFFER_BYTES);
    }
    const char *obstacle = sbit__writer_obstacle(writer.path);
    if (obstacle != NULL) {
        sbit__writer_release(&writer);
        return sbit__fail(error, SBIT_ERR_IO, path, "file '%.300s' cannot be written: %s", path,
                          obstacle);
    }
    if (!sbit__writer_create_unique(&writer)) {
        const int code = errno;
        sbit__writer_release(&writer);
        return sbit__file_fail(error, path, "created", code);
    }
    *out = writer;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__writer_put(sbit__writer *writer, const void *data, size_t size,
                                      sbit_error *error)
{
    const unsigned char *bytes = (const unsigned char *)data;
    if (size <= SBIT__FILE_BUFFER_BYTES - writer->buffered) {
        if (size != 0) {
            memcpy(writer->buffer + writer->buffered, bytes, size);
        }
        writer->buffered += size;
        writer->written += size;
        return SBIT_OK;
    }
    const size_t buffered = writer->buffered;
    writer->buffered = 0;
    if (!sbit__writer_raw(writer, writer->buffer, buffered)) {
        return sbit__file_fail(error, writer->path, "written", errno);
    }
    if (size < SBIT__FILE_BUFFER_BYTES) {
        memcpy(writer->buffer, bytes, size);
        writer->buffered = size;
    } else if (!sbit__writer_raw(writer, bytes, size)) {
        return sbit__file_fail(error, writer->path, "written", errno);
    }
    writer->written += size;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__writer_commit(sbit__writer *writer, sbit_error *error)
{
    sbit_status status = SBIT_OK;
    const bool flushed = sbit__writer_raw(writer, writer->buffer, writer->buffered);
    const int flush_code = flushed ? 0 : errno;
    if (!sbit__writer_finish(writer) || !flushed) {
        status = sbit__file_fail(error, writer->path, "written", flushed ? errno : flush_code);
    } else if (!sbit__writer_replace(writer->temp_path, writer->path)) {
        status = sbit__file_fail(error, writer->path, "replaced", errno);
    }
    if (status != SBIT_OK) {
        remove(writer->temp_path);
    }
    sbit__writer_release(writer);
    return status;
}

SBIT__FN void sbit__writer_abort(sbit__writer *writer)
{
    if (writer->path == NULL) {
        return;
    }
    sbit__writer_drop(writer);
    remove(writer->temp_path);
    sbit__writer_release(writer);
}
#undef SBIT__FILE_POSIX
#undef SBIT__FILE_CLOEXEC
#undef SBIT__FILE_BUFFER_BYTES
#undef SBIT__FILE_CHUNK_BYTES
#undef SBIT__FILE_TEMP_TRIES
#undef SBIT__FILE_LINK_TRIES

#else /* SPARSEBIT_NO_FILES */

static sbit_status sbit__file_refuse(const char *path, sbit_error *error)
{
    return sbit__fail(error, SBIT_ERR_UNSUPPORTED, path,
                      "file '%.300s': file access is switched off (SPARSEBIT_NO_FILES)", path);
}

SBIT__FN bool sbit__file_missing(const char *path)
{
    (void)path;
    return false; /* whoever opens it is told why it cannot be */
}

SBIT__FN sbit_status sbit__file_open(const sbit_allocator *a, const char *path, sbit__file *out,
                                     sbit_error *error)
{
    (void)a;
    memset(out, 0, sizeof *out);
    return sbit__file_refuse(path, error);
}

SBIT__FN sbit_status sbit__file_open_range(const sbit_allocator *a, const char *path,
                                           uint64_t offset, size_t size, sbit__file *out,
                                           sbit_error *error)
{
    (void)a;
    (void)offset;
    (void)size;
    memset(out, 0, sizeof *out);
    return sbit__file_refuse(path, error);
}

SBIT__FN void sbit__file_close(sbit__file *file)
{
    file->data = NULL;
    file->size = 0;
}

SBIT__FN sbit_status sbit__writer_open(const sbit_allocator *a, const char *path, sbit__writer *out,
                                       sbit_error *error)
{
    (void)a;
    memset(out, 0, sizeof *out);
    return sbit__file_refuse(path, error);
}

SBIT__FN sbit_status sbit__writer_put(sbit__writer *writer, const void *data, size_t size,
                                      sbit_error *error)
{
    (void)writer;
    (void)data;
    (void)size;
    return sbit__file_refuse("", error);
}

SBIT__FN sbit_status sbit__writer_commit(sbit__writer *writer, sbit_error *error)
{
    (void)writer;
    return sbit__file_refuse("", error);
}

SBIT__FN void sbit__writer_abort(sbit__writer *writer)
{
    (void)writer;
}

#endif /* SPARSEBIT_NO_FILES */

#ifdef SBIT__PAGES_FORGET
/* Whole pages inside of a block. */
static void sbit__pages_advise(void *data, size_t size, int advice)
{
    const size_t page = sbit__file_page_bytes(), lead = page - ((uintptr_t)data & (page - 1));
    const size_t skipped = lead % page;
    if (size >= skipped + page) {
        unsigned char *first = (unsigned char *)data;
        (void)madvise(first + skipped, (size - skipped) / page * page, advice);
    }
}
#endif

SBIT__FN void sbit__file_forget(const sbit__file *file, const void *data, size_t size)
{
#ifdef SBIT__PAGES_FORGET
    const uintptr_t first = (uintptr_t)file->data, at = (uintptr_t)data;
    if (file->mapped && at >= first && size <= file->size && at - first <= file->size - size) {
        sbit__pages_advise(sbit__file_unconst((const unsigned char *)data), size, SBIT__PAGES_FORGET);
    }
#else
    (void)file;
    (void)data;
    (void)size;
#endif
}

SBIT__FN void sbit__pages_large(void *data, size_t size)
{
#ifdef SBIT__PAGES_LARGE
    sbit__pages_advise(data, size, SBIT__PAGES_LARGE);
#else
    (void)data;
    (void)size;
#endif
}
/* ---- end src/base/file.c ---- */

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && !defined(__OPTIMIZE_SIZE__)
#pragma GCC pop_options
#endif

/* ---- begin src/onnx/onnx_private.h ---- */
/* onnx_private.h: what the files of the codec share: wire primitives, the schema table, the
 * document and external data.
 *
 * Called by: src/onnx only. Calls: base.
 */
#ifndef SBIT_ONNX_PRIVATE_H
#define SBIT_ONNX_PRIVATE_H

#ifdef __cplusplus
extern "C" {
#endif

/* >>wire: protobuf's encoding. A field is a tag, varint of (number << 3 | wire type), and a
 * payload that the wire type delimits. */
enum {
    SBIT__WIRE_VARINT = 0,  /* 7 bits a byte, low bits first, top bit: more follow; <= 10 bytes */
    SBIT__WIRE_FIXED64 = 1, /* 8 bytes, little-endian */
    SBIT__WIRE_LENGTH = 2,  /* varint length, then that many bytes */
    SBIT__WIRE_GROUP_START = 3, /* fields up to the GROUP_END with the same number */
    SBIT__WIRE_GROUP_END = 4,
    SBIT__WIRE_FIXED32 = 5 /* 4 bytes, little-endian */
};

/* One field as it lies in the input. */
typedef struct sbit__wire_item {
    const unsigned char *start; /* of the tag */
    const unsigned char *end;   /* behind the payload */
    const unsigned char *data;  /* LENGTH: the payload, else NULL */
    size_t size;                /* LENGTH: bytes of the payload */
    uint64_t value;             /* VARINT, FIXED64, FIXED32 */
    uint32_t number, wire;
} sbit__wire_item;

/* Reads the varint at *p; false if it is cut off or holds more than 64 bits. */
SBIT__FN bool sbit__wire_varint(const unsigned char **p, const unsigned char *end, uint64_t *value);
SBIT__FN uint32_t sbit__wire_load32(const unsigned char *p); /* little-endian, unaligned */
SBIT__FN uint64_t sbit__wire_load64(const unsigned char *p);
/* Reads the field at p (p < end) with its payload inside [p, end). NULL is success, else a
 * sentence's end saying what is wrong; `depth` bounds nested groups. */
SBIT__FN const char *sbit__wire_next(const unsigned char *p, const unsigned char *end,
                                     uint32_t depth, sbit__wire_item *item);
/* Varints in a packed block; false if the last one is cut off. */
SBIT__FN bool sbit__wire_count_varints(const unsigned char *p, size_t size, size_t *count);

/* Bytes gathered backwards, last byte first, so that the length of a message is known when its
 * length prefix is due. Without a buffer everything is only measured. */
typedef struct sbit__wire_out {
    unsigned char *begin; /* NULL: measure only */
    unsigned char *p;     /* first byte so far */
    uint64_t total;       /* bytes so far, referenced ones included */
} sbit__wire_out;

SBIT__FN void sbit__wire_put_bytes(sbit__wire_out *out, const void *data, size_t size);
SBIT__FN void sbit__wire_put_varint(sbit__wire_out *out, uint64_t value);
SBIT__FN void sbit__wire_put_fixed32(sbit__wire_out *out, uint32_t value);
SBIT__FN void sbit__wire_put_fixed64(sbit__wire_out *out, uint64_t value);
SBIT__FN void sbit__wire_put_tag(sbit__wire_out *out, uint32_t number, uint32_t wire);

/* >>schema */
typedef enum sbit__onnx_type {
    SBIT__ONNX_INT32 = 0, /* varint, sign-extended; enums too */
    SBIT__ONNX_INT64,
    SBIT__ONNX_UINT64,
    SBIT__ONNX_FLOAT,
    SBIT__ONNX_DOUBLE,
    SBIT__ONNX_TEXT,   /* sbit_str in the arena, NUL-terminated */
    SBIT__ONNX_BYTES,  /* sbit_str, borrowed from the input */
    SBIT__ONNX_MESSAGE /* pointer to a struct, or to an array of structs */
} sbit__onnx_type;

typedef struct sbit__onnx_field {
    const char *name;
    uint16_t offset;       /* of the member: value, sbit_str or pointer */
    uint16_t count_offset; /* repeated: of the size_t with the number of elements */
    uint8_t number;        /* rows of a message are sorted by it */
    uint8_t type;          /* sbit__onnx_type */
    uint8_t kind;          /* MESSAGE: sbit_onnx_kind of the sub-message */
    bool repeated;
    bool packed; /* repeated numbers: onnx.proto says [packed = true] */
    bool oneof;  /* setting this field clears the others of the message's oneof */
} sbit__onnx_field;

#define SBIT__ONNX_MAX_FIELDS 24 /* rows of the largest message, at least */

typedef struct sbit__onnx_schema {
    const char *name;
    const sbit__onnx_field *fields;
    size_t field_count;
    size_t size; /* of the struct */
} sbit__onnx_schema;

SBIT__FN const sbit__onnx_schema *sbit__onnx_schema_at(int kind);
SBIT__FN size_t sbit__onnx_element_bytes(const sbit__onnx_field *field); /* of one array element */
SBIT__FN uint32_t sbit__onnx_wire_of_element(const sbit__onnx_field *field);

/* The members that a row describes. */
SBIT__INLINE const void *sbit__onnx_member(const void *message, const sbit__onnx_field *field)
{
    return (const char *)message + field->offset;
}
SBIT__INLINE size_t sbit__onnx_count(const void *message, const sbit__onnx_field *field)
{
    size_t count;
    memcpy(&count, (const char *)message + field->count_offset, sizeof(count));
    return count;
}
SBIT__INLINE const void *sbit__onnx_pointer(const void *message, const sbit__onnx_field *field)
{
    const void *pointer; /* copied as bytes: the member's own type is some other pointer */
    memcpy(&pointer, (const char *)message + field->offset, sizeof(pointer));
    return pointer;
}
SBIT__INLINE bool sbit__onnx_has(const void *message, const sbit__onnx_field *field)
{
    return ((((const sbit_onnx_msg *)message)->has >> field->number) & 1u) != 0;
}

/* >>document */
struct sbit_onnx_doc {
    sbit__arena arena;
    sbit_onnx_kind kind;
    void *root;
    const char *folder;
    sbit__file file; /* what was loaded; zero for documents in memory */
    /* external data read so far, by "offset:length:location" */
    sbit__map range_of;
    sbit__file *ranges;
    size_t range_count, range_capacity;
};

/* The failure of an arena allocation: LIMIT or OUT_OF_MEMORY. */
SBIT__FN sbit_status sbit__onnx_arena_fail(const sbit__arena *arena, size_t bytes,
                                           sbit_error *error);
/* Copies the folder of `path` ("." if none) into the arena. */
SBIT__FN const char *sbit__onnx_folder_of(sbit__arena *arena, const char *path);

/* Calls visit for each tensor inside a message in wire order. `parent` is the row whose value the
 * tensor is (NULL: the message itself). Stops at the first status that is not SBIT_OK. */
typedef sbit_status (*sbit__onnx_visit_fn)(const sbit_onnx_tensor *tensor,
                                           const sbit__onnx_field *parent, void *user,
                                           sbit_error *error);
SBIT__FN sbit_status sbit__onnx_visit_tensors(sbit_onnx_kind kind, const void *message,
                                              sbit__onnx_visit_fn visit, void *user,
                                              sbit_error *error);

/* >>tensor */
enum {
    SBIT__ONNX_EXTERNAL = 1
}; /* TensorProto.DataLocation */

SBIT__FN bool sbit__onnx_is_external(const sbit_onnx_tensor *tensor);
/* Checks that the chosen data field holds what dims say; *bytes: as raw_data stores it. Not for
 * strings. External tensors pass if `length`, where given, fits. */
SBIT__FN sbit_status sbit__onnx_tensor_bytes(const sbit_onnx_tensor *tensor, size_t *bytes,
                                             sbit_error *error);
/* The elements of a tensor that is not external: a view of a field, or converted into `arena`.
 * In the host's byte order, or little-endian as in files. */
SBIT__FN sbit_status sbit__onnx_tensor_view(sbit__arena *arena, const sbit_onnx_tensor *tensor,
                                            bool little_endian, sbit_str *out, sbit_error *error);
/* How a message names a tensor: its name or "(unnamed)". */
SBIT__FN const char *sbit__onnx_tensor_label(const sbit_onnx_tensor *tensor);
/* Reverses the bytes of each `unit`; for hosts whose byte order is not the file's. */
SBIT__FN bool sbit__onnx_host_is_little(void);
SBIT__FN sbit_status sbit__onnx_swapped(sbit__arena *arena, int32_t dtype, sbit_str *view,
                                        sbit_error *error);

/* >>external */
typedef struct sbit__onnx_external {
    const char *location;
    uint64_t offset;
    uint64_t length; /* UINT64_MAX: not given */
} sbit__onnx_external;

SBIT__FN sbit_status sbit__onnx_external_info(const sbit_onnx_tensor *tensor,
                                              sbit__onnx_external *out, sbit_error *error);
/* Maps or reads the tensor's bytes; the caller closes the file. */
SBIT__FN sbit_status sbit__onnx_external_open(const sbit_onnx_doc *doc,
                                              const sbit_onnx_tensor *tensor, sbit__file *out,
                                              sbit_error *error);
/* The same, kept open until the document goes. */
SBIT__FN sbit_status sbit__onnx_external_view(sbit_onnx_doc *doc, const sbit_onnx_tensor *tensor,
                                              sbit_str *out, sbit_error *error);
SBIT__FN void sbit__onnx_external_close_all(sbit_onnx_doc *doc);
/* sbit__file_forget for the document's files. */
SBIT__FN void sbit__onnx_forget(const sbit_onnx_doc *doc, const void *data, size_t size);

/* Where a save puts the tensors that it does not write as they are, in wire order. */
typedef struct sbit__onnx_place {
    const sbit_onnx_tensor *tensor;
    bool from_file; /* external in the document */
    bool to_file;   /* external in what is written */
    uint64_t offset;
    size_t bytes;
} sbit__onnx_place;

typedef struct sbit__onnx_plan {
    sbit_allocator allocator;
    sbit__onnx_place *places;
    size_t count, capacity;
    uint64_t file_bytes; /* of the external file; 0: there is none */
    const char *location;
    size_t above_bytes;
    uint32_t align;
} sbit__onnx_plan;

SBIT__FN sbit_status sbit__onnx_plan_build(sbit__onnx_plan *plan, sbit_onnx_doc *doc,
                                           sbit_error *error);
SBIT__FN sbit_status sbit__onnx_plan_write(const sbit__onnx_plan *plan, const sbit_onnx_doc *doc,
                                           sbit__writer *writer, sbit_error *error);
/* What bytes that are no ONNX model are ("compressed with gzip: unpack it first"), static text;
 * NULL: nothing known. */
SBIT__FN const char *sbit__onnx_magic(const void *bytes, size_t size);
/* True if `name` may stand in `location`: relative, inside the folder. */
SBIT__FN bool sbit__onnx_location_is_safe(const char *name, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* SBIT_ONNX_PRIVATE_H */
/* ---- end src/onnx/onnx_private.h ---- */

/* ---- begin src/onnx/wire.c ---- */
/* wire.c: reading and writing protobuf's wire format. >>wire
 *
 * Called by: read, write. Calls: nothing. Encoding: protobuf.dev/programming-guides/encoding.
 * Does: check every length against the bytes that are left before it is used.
 * Does not: know messages; see schema.
 *
 * Writing goes from the last byte to the first: when a message's length prefix is due, its bytes
 * are already there. So one pass measures, one writes, neither remembers sizes of sub-messages.
 */

SBIT__FN bool sbit__wire_varint(const unsigned char **p, const unsigned char *end, uint64_t *value)
{
    const unsigned char *q = *p;
    uint64_t result = 0;
    for (unsigned shift = 0; shift < 70 && q < end; shift += 7) {
        const uint64_t octet = *q++;
        if (shift == 63 && octet > 1) {
            return false;
        }
        result |= (octet & 0x7f) << shift;
        if (octet < 0x80) {
            *p = q;
            *value = result;
            return true;
        }
    }
    return false;
}

SBIT__FN uint32_t sbit__wire_load32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

SBIT__FN uint64_t sbit__wire_load64(const unsigned char *p)
{
    return (uint64_t)sbit__wire_load32(p) | (uint64_t)sbit__wire_load32(p + 4) << 32;
}

static const char *sbit__wire_skip_group(const unsigned char *p, const unsigned char *end,
                                         uint32_t depth, sbit__wire_item *group)
{
    if (depth == 0) {
        return "groups are nested too deeply";
    }
    while (p < end) {
        sbit__wire_item item;
        const char *problem = sbit__wire_next(p, end, depth - 1, &item);
        p = item.end;
        if (problem != NULL) {
            group->end = p;
            return problem;
        }
        if (item.wire == SBIT__WIRE_GROUP_END) {
            group->end = p;
            return item.number == group->number ? NULL : "the end of another group stands here";
        }
    }
    group->end = p;
    return "the group has no end";
}

static const char *sbit__wire_payload(const unsigned char *p, const unsigned char *end,
                                      uint32_t depth, sbit__wire_item *item)
{
    uint64_t length = 0;
    switch (item->wire) {
    case SBIT__WIRE_VARINT:
        if (!sbit__wire_varint(&p, end, &item->value)) {
            return "the varint is cut off or longer than 10 bytes";
        }
        break;
    case SBIT__WIRE_FIXED64:
    case SBIT__WIRE_FIXED32: {
        const size_t size = item->wire == SBIT__WIRE_FIXED64 ? 8 : 4;
        if ((size_t)(end - p) < size) {
            return "the fixed-size value is cut off";
        }
        item->value = size == 8 ? sbit__wire_load64(p) : sbit__wire_load32(p);
        p += size;
        break;
    }
    case SBIT__WIRE_LENGTH:
        if (!sbit__wire_varint(&p, end, &length)) {
            return "the length is cut off or longer than 10 bytes";
        }
        if (length > (uint64_t)(end - p)) {
            return "the length exceeds the bytes that are left";
        }
        item->data = p;
        item->size = (size_t)length;
        p += item->size;
        break;
    case SBIT__WIRE_GROUP_START:
        return sbit__wire_skip_group(p, end, depth, item);
    case SBIT__WIRE_GROUP_END:
        break;
    default:
        return "wire types 6 and 7 do not exist";
    }
    item->end = p;
    return NULL;
}

SBIT__FN const char *sbit__wire_next(const unsigned char *p, const unsigned char *end,
                                     uint32_t depth, sbit__wire_item *item)
{
    uint64_t tag = 0;
    item->start = p;
    item->end = p;
    item->data = NULL;
    item->size = 0;
    item->value = 0;
    item->number = 0;
    item->wire = 0;
    if (!sbit__wire_varint(&p, end, &tag)) {
        return "the tag is cut off or longer than 10 bytes";
    }
    if (tag >> 3 == 0 || tag > UINT32_MAX) {
        return "the field number is not between 1 and 536870911";
    }
    item->end = p;
    item->number = (uint32_t)(tag >> 3);
    item->wire = (uint32_t)(tag & 7);
    return sbit__wire_payload(p, end, depth, item);
}

SBIT__FN bool sbit__wire_count_varints(const unsigned char *p, size_t size, size_t *count)
{
    size_t ends = 0;
    for (size_t i = 0; i < size; i++) {
        ends += p[i] < 0x80 ? 1 : 0;
    }
    *count = ends;
    return size == 0 || p[size - 1] < 0x80;
}

/* ---- writing, backwards ---- */

SBIT__FN void sbit__wire_put_bytes(sbit__wire_out *out, const void *data, size_t size)
{
    out->total += size;
    if (out->begin != NULL && size != 0) {
        SPARSEBIT_ASSERT((size_t)(out->p - out->begin) >= size);
        out->p -= size;
        memcpy(out->p, data, size);
    }
}

SBIT__FN void sbit__wire_put_varint(sbit__wire_out *out, uint64_t value)
{
    unsigned char bytes[10];
    size_t size = 0;
    for (; value >= 0x80; value >>= 7) {
        bytes[size++] = (unsigned char)(value | 0x80);
    }
    bytes[size++] = (unsigned char)value;
    sbit__wire_put_bytes(out, bytes, size);
}

SBIT__FN void sbit__wire_put_fixed32(sbit__wire_out *out, uint32_t value)
{
    unsigned char bytes[4];
    for (unsigned i = 0; i < 4; i++) {
        bytes[i] = (unsigned char)(value >> (8 * i));
    }
    sbit__wire_put_bytes(out, bytes, sizeof(bytes));
}

SBIT__FN void sbit__wire_put_fixed64(sbit__wire_out *out, uint64_t value)
{
    sbit__wire_put_fixed32(out, (uint32_t)(value >> 32));
    sbit__wire_put_fixed32(out, (uint32_t)value);
}

SBIT__FN void sbit__wire_put_tag(sbit__wire_out *out, uint32_t number, uint32_t wire)
{
    sbit__wire_put_varint(out, (uint64_t)number << 3 | wire);
}
/* ---- end src/onnx/wire.c ---- */

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && !defined(__OPTIMIZE_SIZE__)
#pragma GCC push_options
#pragma GCC optimize("O1")
#endif

/* ---- begin src/onnx/magic.c ---- */
/* magic.c: what a file that is no ONNX model is, by its first bytes. >>magic
 *
 * Called by: read, external. Calls: nothing.
 * None of these beginnings is one that a writer of ONNX files makes. Text is looked at behind
 * spaces and a byte order mark.
 */

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
/* ---- end src/onnx/magic.c ---- */

/* ---- begin src/onnx/schema.c ---- */
/* schema.c: the table of messages and fields, and what follows from it: copy, equality, visits.
 * >>schema
 *
 * Called by: read, write, external, print, users (copy, equal). Calls: base.
 * The table is onnx.proto (IR version 13) and onnx-data.proto, field by field: a row says where
 * the member lies in the struct of onnx_api.h and how it looks on the wire. Every operation on
 * messages is one loop over rows; a new field of ONNX is one member and one row.
 */

/* clang-format off */
#define SBIT__ONNX_OFFSET(msg, member) (uint16_t) offsetof(struct sbit_onnx_##msg, member)
#define SBIT__ONNX_ONE(msg, member, number, type)                                                  \
    {#member, SBIT__ONNX_OFFSET(msg, member), 0, SBIT_ONNX_##number, SBIT__ONNX_##type, 0, false,  \
     false, false}
#define SBIT__ONNX_ONEOF(msg, member, number, type)                                                \
    {#member, SBIT__ONNX_OFFSET(msg, member), 0, SBIT_ONNX_##number, SBIT__ONNX_##type, 0, false,  \
     false, true}
#define SBIT__ONNX_LIST(msg, member, number, type, kind, packed)                                   \
    {#member, SBIT__ONNX_OFFSET(msg, member), SBIT__ONNX_OFFSET(msg, member##_count),              \
     SBIT_ONNX_##number, SBIT__ONNX_##type, kind, true, packed, false}
#define SBIT__ONNX_MANY(msg, member, number, type)                                                 \
    SBIT__ONNX_LIST(msg, member, number, type, 0, false)
#define SBIT__ONNX_PACKED(msg, member, number, type)                                               \
    SBIT__ONNX_LIST(msg, member, number, type, 0, true)
#define SBIT__ONNX_SUB(msg, member, number, sub)                                                   \
    {#member, SBIT__ONNX_OFFSET(msg, member), 0, SBIT_ONNX_##number, SBIT__ONNX_MESSAGE,           \
     SBIT_ONNX_##sub, false, false, false}
#define SBIT__ONNX_SUB_ONEOF(msg, member, number, sub)                                             \
    {#member, SBIT__ONNX_OFFSET(msg, member), 0, SBIT_ONNX_##number, SBIT__ONNX_MESSAGE,           \
     SBIT_ONNX_##sub, false, false, true}
#define SBIT__ONNX_SUBS(msg, member, number, sub)                                                  \
    SBIT__ONNX_LIST(msg, member, number, MESSAGE, SBIT_ONNX_##sub, false)
#define SBIT__ONNX_SCHEMA(msg)                                                                     \
    {#msg, sbit__onnx_##msg##_fields, SBIT__COUNT_OF(sbit__onnx_##msg##_fields),                   \
     sizeof(struct sbit_onnx_##msg)}
/* clang-format on */

static const sbit__onnx_field sbit__onnx_string_entry_fields[] = {
    SBIT__ONNX_ONE(string_entry, key, STRING_ENTRY_KEY, TEXT),
    SBIT__ONNX_ONE(string_entry, value, STRING_ENTRY_VALUE, TEXT),
};

static const sbit__onnx_field sbit__onnx_opset_id_fields[] = {
    SBIT__ONNX_ONE(opset_id, domain, OPSET_ID_DOMAIN, TEXT),
    SBIT__ONNX_ONE(opset_id, version, OPSET_ID_VERSION, INT64),
};

static const sbit__onnx_field sbit__onnx_segment_fields[] = {
    SBIT__ONNX_ONE(segment, begin, SEGMENT_BEGIN, INT64),
    SBIT__ONNX_ONE(segment, end, SEGMENT_END, INT64),
};

static const sbit__onnx_field sbit__onnx_tensor_fields[] = {
    SBIT__ONNX_MANY(tensor, dims, TENSOR_DIMS, INT64),
    SBIT__ONNX_ONE(tensor, data_type, TENSOR_DATA_TYPE, INT32),
    SBIT__ONNX_SUB(tensor, segment, TENSOR_SEGMENT, SEGMENT),
    SBIT__ONNX_PACKED(tensor, float_data, TENSOR_FLOAT_DATA, FLOAT),
    SBIT__ONNX_PACKED(tensor, int32_data, TENSOR_INT32_DATA, INT32),
    SBIT__ONNX_MANY(tensor, string_data, TENSOR_STRING_DATA, BYTES),
    SBIT__ONNX_PACKED(tensor, int64_data, TENSOR_INT64_DATA, INT64),
    SBIT__ONNX_ONE(tensor, name, TENSOR_NAME, TEXT),
    SBIT__ONNX_ONE(tensor, raw_data, TENSOR_RAW_DATA, BYTES),
    SBIT__ONNX_PACKED(tensor, double_data, TENSOR_DOUBLE_DATA, DOUBLE),
    SBIT__ONNX_PACKED(tensor, uint64_data, TENSOR_UINT64_DATA, UINT64),
    SBIT__ONNX_ONE(tensor, doc_string, TENSOR_DOC_STRING, TEXT),
    SBIT__ONNX_SUBS(tensor, external_data, TENSOR_EXTERNAL_DATA, STRING_ENTRY),
    SBIT__ONNX_ONE(tensor, data_location, TENSOR_DATA_LOCATION, INT32),
    SBIT__ONNX_SUBS(tensor, metadata_props, TENSOR_METADATA_PROPS, STRING_ENTRY),
};

static const sbit__onnx_field sbit__onnx_sparse_tensor_fields[] = {
    SBIT__ONNX_SUB(sparse_tensor, values, SPARSE_TENSOR_VALUES, TENSOR),
    SBIT__ONNX_SUB(sparse_tensor, indices, SPARSE_TENSOR_INDICES, TENSOR),
    SBIT__ONNX_MANY(sparse_tensor, dims, SPARSE_TENSOR_DIMS, INT64),
};

static const sbit__onnx_field sbit__onnx_dimension_fields[] = {
    SBIT__ONNX_ONEOF(dimension, dim_value, DIMENSION_DIM_VALUE, INT64),
    SBIT__ONNX_ONEOF(dimension, dim_param, DIMENSION_DIM_PARAM, TEXT),
    SBIT__ONNX_ONE(dimension, denotation, DIMENSION_DENOTATION, TEXT),
};

static const sbit__onnx_field sbit__onnx_shape_fields[] = {
    SBIT__ONNX_SUBS(shape, dim, SHAPE_DIM, DIMENSION),
};

static const sbit__onnx_field sbit__onnx_type_tensor_fields[] = {
    SBIT__ONNX_ONE(type_tensor, elem_type, TYPE_TENSOR_ELEM_TYPE, INT32),
    SBIT__ONNX_SUB(type_tensor, shape, TYPE_TENSOR_SHAPE, SHAPE),
};

static const sbit__onnx_field sbit__onnx_type_sparse_tensor_fields[] = {
    SBIT__ONNX_ONE(type_sparse_tensor, elem_type, TYPE_SPARSE_TENSOR_ELEM_TYPE, INT32),
    SBIT__ONNX_SUB(type_sparse_tensor, shape, TYPE_SPARSE_TENSOR_SHAPE, SHAPE),
};

static const sbit__onnx_field sbit__onnx_type_sequence_fields[] = {
    SBIT__ONNX_SUB(type_sequence, elem_type, TYPE_SEQUENCE_ELEM_TYPE, TYPE),
};

static const sbit__onnx_field sbit__onnx_type_map_fields[] = {
    SBIT__ONNX_ONE(type_map, key_type, TYPE_MAP_KEY_TYPE, INT32),
    SBIT__ONNX_SUB(type_map, value_type, TYPE_MAP_VALUE_TYPE, TYPE),
};

static const sbit__onnx_field sbit__onnx_type_optional_fields[] = {
    SBIT__ONNX_SUB(type_optional, elem_type, TYPE_OPTIONAL_ELEM_TYPE, TYPE),
};

static const sbit__onnx_field sbit__onnx_type_opaque_fields[] = {
    SBIT__ONNX_ONE(type_opaque, domain, TYPE_OPAQUE_DOMAIN, TEXT),
    SBIT__ONNX_ONE(type_opaque, name, TYPE_OPAQUE_NAME, TEXT),
};

static const sbit__onnx_field sbit__onnx_type_fields[] = {
    SBIT__ONNX_SUB_ONEOF(type, tensor_type, TYPE_TENSOR_TYPE, TYPE_TENSOR),
    SBIT__ONNX_SUB_ONEOF(type, sequence_type, TYPE_SEQUENCE_TYPE, TYPE_SEQUENCE),
    SBIT__ONNX_SUB_ONEOF(type, map_type, TYPE_MAP_TYPE, TYPE_MAP),
    SBIT__ONNX_ONE(type, denotation, TYPE_DENOTATION, TEXT),
    SBIT__ONNX_SUB_ONEOF(type, opaque_type, TYPE_OPAQUE_TYPE, TYPE_OPAQUE),
    SBIT__ONNX_SUB_ONEOF(type, sparse_tensor_type, TYPE_SPARSE_TENSOR_TYPE, TYPE_SPARSE_TENSOR),
    SBIT__ONNX_SUB_ONEOF(type, optional_type, TYPE_OPTIONAL_TYPE, TYPE_OPTIONAL),
};

static const sbit__onnx_field sbit__onnx_value_info_fields[] = {
    SBIT__ONNX_ONE(value_info, name, VALUE_INFO_NAME, TEXT),
    SBIT__ONNX_SUB(value_info, type, VALUE_INFO_TYPE, TYPE),
    SBIT__ONNX_ONE(value_info, doc_string, VALUE_INFO_DOC_STRING, TEXT),
    SBIT__ONNX_SUBS(value_info, metadata_props, VALUE_INFO_METADATA_PROPS, STRING_ENTRY),
};

static const sbit__onnx_field sbit__onnx_attribute_fields[] = {
    SBIT__ONNX_ONE(attribute, name, ATTRIBUTE_NAME, TEXT),
    SBIT__ONNX_ONE(attribute, f, ATTRIBUTE_F, FLOAT),
    SBIT__ONNX_ONE(attribute, i, ATTRIBUTE_I, INT64),
    SBIT__ONNX_ONE(attribute, s, ATTRIBUTE_S, BYTES),
    SBIT__ONNX_SUB(attribute, t, ATTRIBUTE_T, TENSOR),
    SBIT__ONNX_SUB(attribute, g, ATTRIBUTE_G, GRAPH),
    SBIT__ONNX_MANY(attribute, floats, ATTRIBUTE_FLOATS, FLOAT),
    SBIT__ONNX_MANY(attribute, ints, ATTRIBUTE_INTS, INT64),
    SBIT__ONNX_MANY(attribute, strings, ATTRIBUTE_STRINGS, BYTES),
    SBIT__ONNX_SUBS(attribute, tensors, ATTRIBUTE_TENSORS, TENSOR),
    SBIT__ONNX_SUBS(attribute, graphs, ATTRIBUTE_GRAPHS, GRAPH),
    SBIT__ONNX_ONE(attribute, doc_string, ATTRIBUTE_DOC_STRING, TEXT),
    SBIT__ONNX_SUB(attribute, tp, ATTRIBUTE_TP, TYPE),
    SBIT__ONNX_SUBS(attribute, type_protos, ATTRIBUTE_TYPE_PROTOS, TYPE),
    SBIT__ONNX_ONE(attribute, type, ATTRIBUTE_TYPE, INT32),
    SBIT__ONNX_ONE(attribute, ref_attr_name, ATTRIBUTE_REF_ATTR_NAME, TEXT),
    SBIT__ONNX_SUB(attribute, sparse_tensor, ATTRIBUTE_SPARSE_TENSOR, SPARSE_TENSOR),
    SBIT__ONNX_SUBS(attribute, sparse_tensors, ATTRIBUTE_SPARSE_TENSORS, SPARSE_TENSOR),
};

static const sbit__onnx_field sbit__onnx_int_int_list_entry_fields[] = {
    SBIT__ONNX_ONE(int_int_list_entry, key, INT_INT_LIST_ENTRY_KEY, INT64),
    SBIT__ONNX_MANY(int_int_list_entry, value, INT_INT_LIST_ENTRY_VALUE, INT64),
};

static const sbit__onnx_field sbit__onnx_simple_sharded_dim_fields[] = {
    SBIT__ONNX_ONEOF(simple_sharded_dim, dim_value, SIMPLE_SHARDED_DIM_DIM_VALUE, INT64),
    SBIT__ONNX_ONEOF(simple_sharded_dim, dim_param, SIMPLE_SHARDED_DIM_DIM_PARAM, TEXT),
    SBIT__ONNX_ONE(simple_sharded_dim, num_shards, SIMPLE_SHARDED_DIM_NUM_SHARDS, INT64),
};

static const sbit__onnx_field sbit__onnx_sharded_dim_fields[] = {
    SBIT__ONNX_ONE(sharded_dim, axis, SHARDED_DIM_AXIS, INT64),
    SBIT__ONNX_SUBS(sharded_dim, simple_sharding, SHARDED_DIM_SIMPLE_SHARDING, SIMPLE_SHARDED_DIM),
};

static const sbit__onnx_field sbit__onnx_sharding_spec_fields[] = {
    SBIT__ONNX_ONE(sharding_spec, tensor_name, SHARDING_SPEC_TENSOR_NAME, TEXT),
    SBIT__ONNX_MANY(sharding_spec, device, SHARDING_SPEC_DEVICE, INT64),
    SBIT__ONNX_SUBS(sharding_spec, index_to_device_group_map,
                    SHARDING_SPEC_INDEX_TO_DEVICE_GROUP_MAP, INT_INT_LIST_ENTRY),
    SBIT__ONNX_SUBS(sharding_spec, sharded_dim, SHARDING_SPEC_SHARDED_DIM, SHARDED_DIM),
};

static const sbit__onnx_field sbit__onnx_node_device_configuration_fields[] = {
    SBIT__ONNX_ONE(node_device_configuration, configuration_id,
                   NODE_DEVICE_CONFIGURATION_CONFIGURATION_ID, TEXT),
    SBIT__ONNX_SUBS(node_device_configuration, sharding_spec,
                    NODE_DEVICE_CONFIGURATION_SHARDING_SPEC, SHARDING_SPEC),
    SBIT__ONNX_ONE(node_device_configuration, pipeline_stage,
                   NODE_DEVICE_CONFIGURATION_PIPELINE_STAGE, INT32),
};

static const sbit__onnx_field sbit__onnx_node_fields[] = {
    SBIT__ONNX_MANY(node, input, NODE_INPUT, TEXT),
    SBIT__ONNX_MANY(node, output, NODE_OUTPUT, TEXT),
    SBIT__ONNX_ONE(node, name, NODE_NAME, TEXT),
    SBIT__ONNX_ONE(node, op_type, NODE_OP_TYPE, TEXT),
    SBIT__ONNX_SUBS(node, attribute, NODE_ATTRIBUTE, ATTRIBUTE),
    SBIT__ONNX_ONE(node, doc_string, NODE_DOC_STRING, TEXT),
    SBIT__ONNX_ONE(node, domain, NODE_DOMAIN, TEXT),
    SBIT__ONNX_ONE(node, overload, NODE_OVERLOAD, TEXT),
    SBIT__ONNX_SUBS(node, metadata_props, NODE_METADATA_PROPS, STRING_ENTRY),
    SBIT__ONNX_SUBS(node, device_configurations, NODE_DEVICE_CONFIGURATIONS,
                    NODE_DEVICE_CONFIGURATION),
};

static const sbit__onnx_field sbit__onnx_tensor_annotation_fields[] = {
    SBIT__ONNX_ONE(tensor_annotation, tensor_name, TENSOR_ANNOTATION_TENSOR_NAME, TEXT),
    SBIT__ONNX_SUBS(tensor_annotation, quant_parameter_tensor_names,
                    TENSOR_ANNOTATION_QUANT_PARAMETER_TENSOR_NAMES, STRING_ENTRY),
};

static const sbit__onnx_field sbit__onnx_graph_fields[] = {
    SBIT__ONNX_SUBS(graph, node, GRAPH_NODE, NODE),
    SBIT__ONNX_ONE(graph, name, GRAPH_NAME, TEXT),
    SBIT__ONNX_SUBS(graph, initializer, GRAPH_INITIALIZER, TENSOR),
    SBIT__ONNX_ONE(graph, doc_string, GRAPH_DOC_STRING, TEXT),
    SBIT__ONNX_SUBS(graph, input, GRAPH_INPUT, VALUE_INFO),
    SBIT__ONNX_SUBS(graph, output, GRAPH_OUTPUT, VALUE_INFO),
    SBIT__ONNX_SUBS(graph, value_info, GRAPH_VALUE_INFO, VALUE_INFO),
    SBIT__ONNX_SUBS(graph, quantization_annotation, GRAPH_QUANTIZATION_ANNOTATION,
                    TENSOR_ANNOTATION),
    SBIT__ONNX_SUBS(graph, sparse_initializer, GRAPH_SPARSE_INITIALIZER, SPARSE_TENSOR),
    SBIT__ONNX_SUBS(graph, metadata_props, GRAPH_METADATA_PROPS, STRING_ENTRY),
};

static const sbit__onnx_field sbit__onnx_training_info_fields[] = {
    SBIT__ONNX_SUB(training_info, initialization, TRAINING_INFO_INITIALIZATION, GRAPH),
    SBIT__ONNX_SUB(training_info, algorithm, TRAINING_INFO_ALGORITHM, GRAPH),
    SBIT__ONNX_SUBS(training_info, initialization_binding, TRAINING_INFO_INITIALIZATION_BINDING,
                    STRING_ENTRY),
    SBIT__ONNX_SUBS(training_info, update_binding, TRAINING_INFO_UPDATE_BINDING, STRING_ENTRY),
};

static const sbit__onnx_field sbit__onnx_function_fields[] = {
    SBIT__ONNX_ONE(function, name, FUNCTION_NAME, TEXT),
    SBIT__ONNX_MANY(function, input, FUNCTION_INPUT, TEXT),
    SBIT__ONNX_MANY(function, output, FUNCTION_OUTPUT, TEXT),
    SBIT__ONNX_MANY(function, attribute, FUNCTION_ATTRIBUTE, TEXT),
    SBIT__ONNX_SUBS(function, node, FUNCTION_NODE, NODE),
    SBIT__ONNX_ONE(function, doc_string, FUNCTION_DOC_STRING, TEXT),
    SBIT__ONNX_SUBS(function, opset_import, FUNCTION_OPSET_IMPORT, OPSET_ID),
    SBIT__ONNX_ONE(function, domain, FUNCTION_DOMAIN, TEXT),
    SBIT__ONNX_SUBS(function, attribute_proto, FUNCTION_ATTRIBUTE_PROTO, ATTRIBUTE),
    SBIT__ONNX_SUBS(function, value_info, FUNCTION_VALUE_INFO, VALUE_INFO),
    SBIT__ONNX_ONE(function, overload, FUNCTION_OVERLOAD, TEXT),
    SBIT__ONNX_SUBS(function, metadata_props, FUNCTION_METADATA_PROPS, STRING_ENTRY),
};

static const sbit__onnx_field sbit__onnx_device_configuration_fields[] = {
    SBIT__ONNX_ONE(device_configuration, name, DEVICE_CONFIGURATION_NAME, TEXT),
    SBIT__ONNX_ONE(device_configuration, num_devices, DEVICE_CONFIGURATION_NUM_DEVICES, INT32),
    SBIT__ONNX_MANY(device_configuration, device, DEVICE_CONFIGURATION_DEVICE, TEXT),
};

static const sbit__onnx_field sbit__onnx_model_fields[] = {
    SBIT__ONNX_ONE(model, ir_version, MODEL_IR_VERSION, INT64),
    SBIT__ONNX_ONE(model, producer_name, MODEL_PRODUCER_NAME, TEXT),
    SBIT__ONNX_ONE(model, producer_version, MODEL_PRODUCER_VERSION, TEXT),
    SBIT__ONNX_ONE(model, domain, MODEL_DOMAIN, TEXT),
    SBIT__ONNX_ONE(model, model_version, MODEL_MODEL_VERSION, INT64),
    SBIT__ONNX_ONE(model, doc_string, MODEL_DOC_STRING, TEXT),
    SBIT__ONNX_SUB(model, graph, MODEL_GRAPH, GRAPH),
    SBIT__ONNX_SUBS(model, opset_import, MODEL_OPSET_IMPORT, OPSET_ID),
    SBIT__ONNX_SUBS(model, metadata_props, MODEL_METADATA_PROPS, STRING_ENTRY),
    SBIT__ONNX_SUBS(model, training_info, MODEL_TRAINING_INFO, TRAINING_INFO),
    SBIT__ONNX_SUBS(model, functions, MODEL_FUNCTIONS, FUNCTION),
    SBIT__ONNX_SUBS(model, configuration, MODEL_CONFIGURATION, DEVICE_CONFIGURATION),
};

static const sbit__onnx_field sbit__onnx_sequence_fields[] = {
    SBIT__ONNX_ONE(sequence, name, SEQUENCE_NAME, TEXT),
    SBIT__ONNX_ONE(sequence, elem_type, SEQUENCE_ELEM_TYPE, INT32),
    SBIT__ONNX_SUBS(sequence, tensor_values, SEQUENCE_TENSOR_VALUES, TENSOR),
    SBIT__ONNX_SUBS(sequence, sparse_tensor_values, SEQUENCE_SPARSE_TENSOR_VALUES, SPARSE_TENSOR),
    SBIT__ONNX_SUBS(sequence, sequence_values, SEQUENCE_SEQUENCE_VALUES, SEQUENCE),
    SBIT__ONNX_SUBS(sequence, map_values, SEQUENCE_MAP_VALUES, MAP),
    SBIT__ONNX_SUBS(sequence, optional_values, SEQUENCE_OPTIONAL_VALUES, OPTIONAL),
};

static const sbit__onnx_field sbit__onnx_map_fields[] = {
    SBIT__ONNX_ONE(map, name, MAP_NAME, TEXT),
    SBIT__ONNX_ONE(map, key_type, MAP_KEY_TYPE, INT32),
    SBIT__ONNX_MANY(map, keys, MAP_KEYS, INT64),
    SBIT__ONNX_MANY(map, string_keys, MAP_STRING_KEYS, BYTES),
    SBIT__ONNX_SUB(map, values, MAP_VALUES, SEQUENCE),
};

static const sbit__onnx_field sbit__onnx_optional_fields[] = {
    SBIT__ONNX_ONE(optional, name, OPTIONAL_NAME, TEXT),
    SBIT__ONNX_ONE(optional, elem_type, OPTIONAL_ELEM_TYPE, INT32),
    SBIT__ONNX_SUB(optional, tensor_value, OPTIONAL_TENSOR_VALUE, TENSOR),
    SBIT__ONNX_SUB(optional, sparse_tensor_value, OPTIONAL_SPARSE_TENSOR_VALUE, SPARSE_TENSOR),
    SBIT__ONNX_SUB(optional, sequence_value, OPTIONAL_SEQUENCE_VALUE, SEQUENCE),
    SBIT__ONNX_SUB(optional, map_value, OPTIONAL_MAP_VALUE, MAP),
    SBIT__ONNX_SUB(optional, optional_value, OPTIONAL_OPTIONAL_VALUE, OPTIONAL),
};

/* In the order of sbit_onnx_kind. */
static const sbit__onnx_schema sbit__onnx_schemas[] = {
    SBIT__ONNX_SCHEMA(string_entry),
    SBIT__ONNX_SCHEMA(opset_id),
    SBIT__ONNX_SCHEMA(segment),
    SBIT__ONNX_SCHEMA(tensor),
    SBIT__ONNX_SCHEMA(sparse_tensor),
    SBIT__ONNX_SCHEMA(dimension),
    SBIT__ONNX_SCHEMA(shape),
    SBIT__ONNX_SCHEMA(type_tensor),
    SBIT__ONNX_SCHEMA(type_sparse_tensor),
    SBIT__ONNX_SCHEMA(type_sequence),
    SBIT__ONNX_SCHEMA(type_map),
    SBIT__ONNX_SCHEMA(type_optional),
    SBIT__ONNX_SCHEMA(type_opaque),
    SBIT__ONNX_SCHEMA(type),
    SBIT__ONNX_SCHEMA(value_info),
    SBIT__ONNX_SCHEMA(attribute),
    SBIT__ONNX_SCHEMA(int_int_list_entry),
    SBIT__ONNX_SCHEMA(simple_sharded_dim),
    SBIT__ONNX_SCHEMA(sharded_dim),
    SBIT__ONNX_SCHEMA(sharding_spec),
    SBIT__ONNX_SCHEMA(node_device_configuration),
    SBIT__ONNX_SCHEMA(node),
    SBIT__ONNX_SCHEMA(tensor_annotation),
    SBIT__ONNX_SCHEMA(graph),
    SBIT__ONNX_SCHEMA(training_info),
    SBIT__ONNX_SCHEMA(function),
    SBIT__ONNX_SCHEMA(device_configuration),
    SBIT__ONNX_SCHEMA(model),
    SBIT__ONNX_SCHEMA(sequence),
    SBIT__ONNX_SCHEMA(map),
    SBIT__ONNX_SCHEMA(optional),
};

#undef SBIT__ONNX_OFFSET
#undef SBIT__ONNX_ONE
#undef SBIT__ONNX_ONEOF
#undef SBIT__ONNX_LIST
#undef SBIT__ONNX_MANY
#undef SBIT__ONNX_PACKED
#undef SBIT__ONNX_SUB
#undef SBIT__ONNX_SUB_ONEOF
#undef SBIT__ONNX_SUBS
#undef SBIT__ONNX_SCHEMA

SBIT__FN const sbit__onnx_schema *sbit__onnx_schema_at(int kind)
{
    return &sbit__onnx_schemas[kind];
}

SBIT__FN uint32_t sbit__onnx_wire_of_element(const sbit__onnx_field *field)
{
    switch (field->type) {
    case SBIT__ONNX_INT32:
    case SBIT__ONNX_INT64:
    case SBIT__ONNX_UINT64:
        return SBIT__WIRE_VARINT;
    case SBIT__ONNX_FLOAT:
        return SBIT__WIRE_FIXED32;
    case SBIT__ONNX_DOUBLE:
        return SBIT__WIRE_FIXED64;
    default:
        return SBIT__WIRE_LENGTH;
    }
}

SBIT__FN size_t sbit__onnx_element_bytes(const sbit__onnx_field *field)
{
    switch (field->type) {
    case SBIT__ONNX_INT32:
    case SBIT__ONNX_FLOAT:
        return 4;
    case SBIT__ONNX_INT64:
    case SBIT__ONNX_UINT64:
    case SBIT__ONNX_DOUBLE:
        return 8;
    case SBIT__ONNX_TEXT:
    case SBIT__ONNX_BYTES:
        return sizeof(sbit_str);
    default:
        return sbit__onnx_schemas[field->kind].size;
    }
}

/* ---- equality ---- */

static bool sbit__onnx_equal_elements(const sbit__onnx_field *field, const void *a, const void *b,
                                      size_t count)
{
    if (field->type == SBIT__ONNX_MESSAGE) {
        const size_t size = sbit__onnx_schemas[field->kind].size;
        for (size_t i = 0; i < count; i++) {
            if (!sbit_onnx_equal((sbit_onnx_kind)field->kind, (const char *)a + i * size,
                                 (const char *)b + i * size)) {
                return false;
            }
        }
        return true;
    }
    if (field->type == SBIT__ONNX_TEXT || field->type == SBIT__ONNX_BYTES) {
        for (size_t i = 0; i < count; i++) {
            if (!sbit__str_eq(((const sbit_str *)a)[i], ((const sbit_str *)b)[i])) {
                return false;
            }
        }
        return true;
    }
    /* numbers bit by bit: NaN equals itself, -0 does not equal 0 */
    return count == 0 || memcmp(a, b, count * sbit__onnx_element_bytes(field)) == 0;
}

static bool sbit__onnx_equal_field(const sbit__onnx_field *field, const void *a, const void *b)
{
    if (field->repeated) {
        const size_t count = sbit__onnx_count(a, field);
        return count == sbit__onnx_count(b, field) &&
               sbit__onnx_equal_elements(field, sbit__onnx_pointer(a, field),
                                         sbit__onnx_pointer(b, field), count);
    }
    if (field->type == SBIT__ONNX_MESSAGE) {
        const void *sub_a = sbit__onnx_pointer(a, field);
        const void *sub_b = sbit__onnx_pointer(b, field);
        return sub_a == NULL || sub_b == NULL
                   ? sub_a == sub_b
                   : sbit_onnx_equal((sbit_onnx_kind)field->kind, sub_a, sub_b);
    }
    const bool has = sbit__onnx_has(a, field);
    return has == sbit__onnx_has(b, field) &&
           (!has || sbit__onnx_equal_elements(field, sbit__onnx_member(a, field),
                                              sbit__onnx_member(b, field), 1));
}

SPARSEBIT_API bool sbit_onnx_equal(sbit_onnx_kind kind, const void *a, const void *b)
{
    const sbit__onnx_schema *schema = &sbit__onnx_schemas[kind];
    for (size_t i = 0; i < schema->field_count; i++) {
        if (!sbit__onnx_equal_field(&schema->fields[i], a, b)) {
            return false;
        }
    }
    return sbit__str_eq(((const sbit_onnx_msg *)a)->unknown, ((const sbit_onnx_msg *)b)->unknown);
}

/* ---- copy: the struct is copied as it is, then each pointer in it is replaced ---- */

static sbit_status sbit__onnx_copy_str(sbit_onnx_doc *doc, bool text, bool copy_bytes,
                                       sbit_str *str, sbit_error *error)
{
    if (text) {
        return str->data == NULL ? SBIT_OK : sbit_onnx_text(doc, str->data, str->size, str, error);
    }
    if (!copy_bytes || str->size == 0) {
        return SBIT_OK;
    }
    char *data = (char *)sbit__arena_alloc(&doc->arena, str->size);
    if (data == NULL) {
        return sbit__onnx_arena_fail(&doc->arena, str->size, error);
    }
    memcpy(data, str->data, str->size);
    str->data = data;
    return SBIT_OK;
}

static sbit_status sbit__onnx_copy_body(sbit_onnx_doc *doc, int kind, void *message,
                                        bool copy_bytes, sbit_error *error);

/* Replaces `*elements` by a copy of its `count` elements and of what they refer to. */
static sbit_status sbit__onnx_copy_elements(sbit_onnx_doc *doc, const sbit__onnx_field *field,
                                            size_t count, const void **elements, bool copy_bytes,
                                            sbit_error *error)
{
    const size_t each = sbit__onnx_element_bytes(field);
    char *copy = (char *)sbit__arena_array(&doc->arena, count, each);
    if (copy == NULL) {
        return sbit__onnx_arena_fail(&doc->arena, count * each, error);
    }
    memcpy(copy, *elements, count * each);
    *elements = copy;
    for (size_t i = 0; i < count && field->type >= SBIT__ONNX_TEXT; i++) {
        if (field->type == SBIT__ONNX_MESSAGE) {
            SBIT__TRY(sbit__onnx_copy_body(doc, field->kind, copy + i * each, copy_bytes, error));
        } else {
            SBIT__TRY(sbit__onnx_copy_str(doc, field->type == SBIT__ONNX_TEXT, copy_bytes,
                                          (sbit_str *)(void *)(copy + i * each), error));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__onnx_copy_body(sbit_onnx_doc *doc, int kind, void *message,
                                        bool copy_bytes, sbit_error *error)
{
    const sbit__onnx_schema *schema = &sbit__onnx_schemas[kind];
    for (size_t i = 0; i < schema->field_count; i++) {
        const sbit__onnx_field *field = &schema->fields[i];
        char *member = (char *)message + field->offset;
        if (field->repeated || field->type == SBIT__ONNX_MESSAGE) {
            const void *elements = sbit__onnx_pointer(message, field);
            const size_t count = field->repeated ? sbit__onnx_count(message, field) : 1;
            if (elements != NULL && count != 0) {
                SBIT__TRY(
                    sbit__onnx_copy_elements(doc, field, count, &elements, copy_bytes, error));
                memcpy(member, &elements, sizeof(elements));
            }
        } else if (field->type == SBIT__ONNX_TEXT || field->type == SBIT__ONNX_BYTES) {
            SBIT__TRY(sbit__onnx_copy_str(doc, field->type == SBIT__ONNX_TEXT, copy_bytes,
                                          (sbit_str *)(void *)member, error));
        }
    }
    return sbit__onnx_copy_str(doc, false, copy_bytes, &((sbit_onnx_msg *)message)->unknown, error);
}

SPARSEBIT_API sbit_status sbit_onnx_copy(sbit_onnx_doc *doc, sbit_onnx_kind kind, const void *src,
                                         void *dst, bool copy_bytes, sbit_error *error)
{
    const size_t size = sbit__onnx_schemas[kind].size;
    void *copy = sbit__arena_alloc(&doc->arena, size);
    if (copy == NULL) {
        return sbit__onnx_arena_fail(&doc->arena, size, error);
    }
    memcpy(copy, src, size);
    SBIT__TRY(sbit__onnx_copy_body(doc, (int)kind, copy, copy_bytes, error));
    memcpy(dst, copy, size);
    return SBIT_OK;
}

/* ---- visiting tensors ---- */

static sbit_status sbit__onnx_visit_message(int kind, const void *message,
                                            const sbit__onnx_field *parent,
                                            sbit__onnx_visit_fn visit, void *user,
                                            sbit_error *error)
{
    if (kind == SBIT_ONNX_TENSOR) {
        return visit((const sbit_onnx_tensor *)message, parent, user, error);
    }
    const sbit__onnx_schema *schema = &sbit__onnx_schemas[kind];
    for (size_t i = 0; i < schema->field_count; i++) {
        const sbit__onnx_field *field = &schema->fields[i];
        if (field->type != SBIT__ONNX_MESSAGE) {
            continue;
        }
        const char *sub = (const char *)sbit__onnx_pointer(message, field);
        const size_t count =
            field->repeated ? sbit__onnx_count(message, field) : (size_t)(sub != NULL ? 1 : 0);
        const size_t size = sbit__onnx_schemas[field->kind].size;
        for (size_t j = 0; j < count; j++) {
            SBIT__TRY(
                sbit__onnx_visit_message(field->kind, sub + j * size, field, visit, user, error));
        }
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__onnx_visit_tensors(sbit_onnx_kind kind, const void *message,
                                              sbit__onnx_visit_fn visit, void *user,
                                              sbit_error *error)
{
    return sbit__onnx_visit_message((int)kind, message, NULL, visit, user, error);
}
/* ---- end src/onnx/schema.c ---- */

/* ---- begin src/onnx/read.c ---- */
/* read.c: documents, and reading messages into them. >>read
 *
 * Called by: users, import. Calls: wire, schema, arena, files.
 * Does: fill the structs of onnx_api.h from bytes that may be hostile. Every message is gone
 * through twice: the first pass counts elements, so that each array is allocated once and never
 * larger than the input justifies; the second fills them. The first pass skips sub-messages, so
 * every tag is decoded twice, whatever the depth.
 * Does not: judge what a model means (see check), nor read external data.
 *
 * proto2 rules kept: a singular sub-message that comes again is merged, any other singular field
 * takes the last value, a oneof keeps its last member, packed and unpacked lists are both
 * accepted, a known number with a foreign wire type is an unknown field.
 */

#define SBIT__READ_DEPTH 100u
#define SBIT__READ_DEPTH_MAX 1000u /* bounds the C stack: below 1 KiB a level */
#define SBIT__READ_ARENA_BYTES ((size_t)1 << 30)
#define SBIT__READ_TEXT_CHUNK ((size_t)4096)
#define SBIT__READ_SINGULAR SIZE_MAX

/* Where the reader is, for error messages: a list from the innermost field outwards. */
typedef struct sbit__read_frame {
    const struct sbit__read_frame *up;
    const sbit__onnx_field *field;
    size_t idx; /* or SBIT__READ_SINGULAR */
} sbit__read_frame;

typedef struct sbit__read_state {
    sbit__arena *arena;
    const unsigned char *base; /* of the whole input, for offsets */
    char *text;                /* free rest of a chunk for short texts */
    size_t text_left;
    sbit_error *error;
} sbit__read_state;

/* One message that is being read. */
typedef struct sbit__read_scope {
    const sbit__onnx_schema *schema;
    void *message;
    const unsigned char *p, *end;
    const sbit__read_frame *frame;
    uint32_t depth; /* levels that may still be opened */
} sbit__read_scope;

/* Fields that the schema does not know, of one message. */
typedef struct sbit__read_unknown {
    const unsigned char *first, *last; /* start of the first, end of the last */
    size_t bytes;
    char *to; /* where the next one is copied; NULL: msg.unknown is a view already */
} sbit__read_unknown;

static sbit_status sbit__read_message(sbit__read_state *state, sbit__read_scope scope);

/* ---- errors ---- */

static size_t sbit__read_path(const sbit__read_frame *frame, char *path, size_t capacity)
{
    const size_t used = frame->up != NULL ? sbit__read_path(frame->up, path, capacity) : 0;
    const bool indexed = frame->idx != SBIT__READ_SINGULAR;
    char idx[32];
    snprintf(idx, sizeof(idx), "[%llu]", (unsigned long long)frame->idx);
    const int size = snprintf(path + used, capacity - used, "%s%s%s", used != 0 ? "." : "",
                              frame->field->name, indexed ? idx : "");
    return size < 0 ? used : (size_t)size < capacity - used ? used + (size_t)size : capacity - 1;
}

static sbit_status sbit__read_fail(const sbit__read_state *state, const sbit__read_frame *frame,
                                   sbit_status status, const unsigned char *at, const char *problem)
{
    char path[256] = "the message";
    if (frame != NULL) {
        sbit__read_path(frame, path, sizeof(path));
    }
    return sbit__fail_at(state->error, status, (uint64_t)(at - state->base), "%s: %s", path,
                         problem);
}

SBIT__FN sbit_status sbit__onnx_arena_fail(const sbit__arena *arena, size_t bytes,
                                           sbit_error *error)
{
    if (arena->limit_bytes != 0 && bytes + 64 > arena->limit_bytes - arena->used_bytes) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL,
                          "the message's structs and texts exceed the limit of %llu bytes",
                          (unsigned long long)arena->limit_bytes);
    }
    return sbit__fail_oom(error, bytes);
}

/* ---- fields ---- */

/* Fields mostly come in the order of the rows: the search starts at the row found last. */
static const sbit__onnx_field *sbit__read_find(const sbit__onnx_schema *schema, uint32_t number,
                                               size_t *hint)
{
    for (size_t i = 0; i < schema->field_count; i++) {
        const size_t row =
            *hint + i < schema->field_count ? *hint + i : *hint + i - schema->field_count;
        if (schema->fields[row].number == number) {
            *hint = row;
            return &schema->fields[row];
        }
    }
    return NULL;
}

static bool sbit__read_is_packed(const sbit__onnx_field *field, const sbit__wire_item *item)
{
    return field->repeated && field->type < SBIT__ONNX_TEXT && item->wire == SBIT__WIRE_LENGTH;
}

/* Decodes the field at scope->p, moves on, and gives its row; *field NULL: unknown. */
static sbit_status sbit__read_next(const sbit__read_state *state, sbit__read_scope *scope,
                                   size_t *hint, sbit__wire_item *item,
                                   const sbit__onnx_field **field)
{
    const char *problem = sbit__wire_next(scope->p, scope->end, scope->depth, item);
    const sbit__onnx_field *row = sbit__read_find(scope->schema, item->number, hint);
    if (problem == NULL && item->wire == SBIT__WIRE_GROUP_END) {
        problem = "a group ends here that did not start";
    }
    if (problem != NULL) {
        sbit__read_frame frame;
        frame.up = scope->frame;
        frame.field = row;
        frame.idx = SBIT__READ_SINGULAR;
        return sbit__read_fail(state, row != NULL ? &frame : scope->frame, SBIT_ERR_PARSE,
                               item->end, problem);
    }
    scope->p = item->end;
    if (row != NULL && item->wire != sbit__onnx_wire_of_element(row) &&
        !sbit__read_is_packed(row, item)) {
        row = NULL;
    }
    *field = row;
    return SBIT_OK;
}

static sbit_status sbit__read_count_packed(const sbit__read_state *state,
                                           const sbit__read_scope *scope,
                                           const sbit__onnx_field *field,
                                           const sbit__wire_item *item, size_t *count)
{
    const size_t each = sbit__onnx_element_bytes(field);
    bool whole = true;
    if (sbit__onnx_wire_of_element(field) == SBIT__WIRE_VARINT) {
        whole = sbit__wire_count_varints(item->data, item->size, count);
    } else {
        *count = item->size / each;
        whole = item->size % each == 0;
    }
    if (whole) {
        return SBIT_OK;
    }
    sbit__read_frame frame;
    frame.up = scope->frame;
    frame.field = field;
    frame.idx = *count;
    return sbit__read_fail(state, &frame, SBIT_ERR_PARSE, item->end,
                           "the last element of the packed list is cut off");
}

/* First pass: how many elements each repeated field gets, how many bytes are unknown. */
static sbit_status sbit__read_count(const sbit__read_state *state, sbit__read_scope scope,
                                    size_t counts[SBIT__ONNX_MAX_FIELDS],
                                    sbit__read_unknown *unknown)
{
    size_t hint = 0;
    while (scope.p < scope.end) {
        sbit__wire_item item;
        const sbit__onnx_field *field = NULL;
        size_t count = 1;
        SBIT__TRY(sbit__read_next(state, &scope, &hint, &item, &field));
        if (field == NULL) {
            unknown->first = unknown->bytes == 0 ? item.start : unknown->first;
            unknown->last = item.end;
            unknown->bytes += (size_t)(item.end - item.start);
            continue;
        }
        if (sbit__read_is_packed(field, &item)) {
            SBIT__TRY(sbit__read_count_packed(state, &scope, field, &item, &count));
        }
        counts[hint] += count;
    }
    return SBIT_OK;
}

/* Makes room behind the elements that a merged message may have already. */
static sbit_status sbit__read_reserve(sbit__read_state *state, void *message,
                                      const sbit__onnx_field *field, size_t extra)
{
    const size_t old_count = sbit__onnx_count(message, field);
    const size_t each = sbit__onnx_element_bytes(field);
    const void *old_elements = sbit__onnx_pointer(message, field);
    size_t count = 0;
    void *elements = NULL;
    if (sbit__add_size(old_count, extra, &count)) {
        elements = sbit__arena_array(state->arena, count, each);
    }
    if (elements == NULL) {
        size_t bytes = SIZE_MAX / 2;
        sbit__mul_size(count, each, &bytes);
        return sbit__onnx_arena_fail(state->arena, bytes, state->error);
    }
    if (old_count != 0) {
        memcpy(elements, old_elements, old_count * each);
    }
    memcpy((char *)message + field->offset, &elements, sizeof(elements));
    return SBIT_OK;
}

/* One run of unknown fields is viewed where it lies; several are joined in the arena. */
static sbit_status sbit__read_reserve_unknown(sbit__read_state *state, sbit_onnx_msg *msg,
                                              sbit__read_unknown *unknown)
{
    const sbit_str old = msg->unknown;
    if (unknown->bytes == 0) {
        return SBIT_OK;
    }
    if (old.size == 0 && (size_t)(unknown->last - unknown->first) == unknown->bytes) {
        msg->unknown.data = (const char *)unknown->first;
        msg->unknown.size = unknown->bytes;
        return SBIT_OK;
    }
    size_t bytes = 0;
    char *joined = NULL;
    if (sbit__add_size(old.size, unknown->bytes, &bytes)) {
        joined = (char *)sbit__arena_alloc(state->arena, bytes);
    }
    if (joined == NULL) {
        return sbit__onnx_arena_fail(state->arena, bytes, state->error);
    }
    if (old.size != 0) {
        memcpy(joined, old.data, old.size);
    }
    unknown->to = joined + old.size;
    msg->unknown.data = joined;
    msg->unknown.size = bytes;
    return SBIT_OK;
}

/* ---- values ---- */

static sbit_status sbit__read_str(sbit__read_state *state, bool text, const sbit__wire_item *item,
                                  sbit_str *out)
{
    out->data = (const char *)item->data;
    out->size = item->size;
    if (!text) {
        return SBIT_OK;
    }
    size_t bytes = 0;
    char *copy = NULL;
    if (sbit__add_size(item->size, 1, &bytes) && bytes > SBIT__READ_TEXT_CHUNK / 8) {
        copy = (char *)sbit__arena_alloc(state->arena, bytes);
    } else {
        if (bytes > state->text_left) {
            state->text = (char *)sbit__arena_alloc(state->arena, SBIT__READ_TEXT_CHUNK);
            state->text_left = state->text != NULL ? SBIT__READ_TEXT_CHUNK : 0;
        }
        copy = state->text;
        if (copy != NULL) {
            state->text += bytes;
            state->text_left -= bytes;
        }
    }
    if (copy == NULL) {
        return sbit__onnx_arena_fail(state->arena,
                                     bytes > SBIT__READ_TEXT_CHUNK ? bytes : SBIT__READ_TEXT_CHUNK,
                                     state->error);
    }
    memcpy(copy, item->data, item->size); /* the NUL behind it: arenas are zeroed */
    out->data = copy;
    return SBIT_OK;
}

static void sbit__read_number(const sbit__onnx_field *field, uint64_t value, void *to)
{
    if (field->type == SBIT__ONNX_INT32 || field->type == SBIT__ONNX_FLOAT) {
        const uint32_t low = (uint32_t)value; /* int32: the upper half is sign extension */
        memcpy(to, &low, sizeof(low));
    } else {
        memcpy(to, &value, sizeof(value));
    }
}

/* Elements of a packed list, counted before. Returns where a varint is too long, or NULL. */
static const unsigned char *sbit__read_packed(const sbit__onnx_field *field,
                                              const sbit__wire_item *item, char *to)
{
    const size_t each = sbit__onnx_element_bytes(field);
    const unsigned char *p = item->data;
    if (sbit__onnx_wire_of_element(field) == SBIT__WIRE_VARINT) {
        for (; p < item->end; to += each) {
            uint64_t value = 0;
            if (!sbit__wire_varint(&p, item->end, &value)) {
                return p;
            }
            sbit__read_number(field, value, to);
        }
    } else if (sbit__onnx_host_is_little()) {
        if (item->size != 0) {
            memcpy(to, p, item->size);
        }
    } else {
        for (; p < item->end; p += each, to += each) {
            sbit__read_number(field, each == 8 ? sbit__wire_load64(p) : sbit__wire_load32(p), to);
        }
    }
    return NULL;
}

static sbit_status sbit__read_sub(sbit__read_state *state, const sbit__read_scope *scope,
                                  const sbit__onnx_field *field, const sbit__wire_item *item,
                                  size_t idx, void *message)
{
    sbit__read_frame frame;
    sbit__read_scope sub;
    frame.up = scope->frame;
    frame.field = field;
    frame.idx = idx;
    if (scope->depth == 0) {
        return sbit__read_fail(state, &frame, SBIT_ERR_LIMIT, item->start,
                               "messages are nested too deeply");
    }
    sub.schema = sbit__onnx_schema_at(field->kind);
    sub.message = message;
    sub.p = item->data;
    sub.end = item->data + item->size;
    sub.frame = &frame;
    sub.depth = scope->depth - 1;
    return sbit__read_message(state, sub);
}

static sbit_status sbit__read_repeated(sbit__read_state *state, const sbit__read_scope *scope,
                                       const sbit__onnx_field *field, const sbit__wire_item *item)
{
    sbit_onnx_msg *msg = (sbit_onnx_msg *)scope->message;
    const size_t each = sbit__onnx_element_bytes(field);
    char *elements = NULL;
    size_t count = sbit__onnx_count(msg, field);
    memcpy(&elements, (char *)scope->message + field->offset, sizeof(elements));
    char *to = elements != NULL ? elements + count * each : NULL; /* NULL: an empty packed list */
    size_t added = 1;
    if (field->type == SBIT__ONNX_MESSAGE) {
        SBIT__TRY(sbit__read_sub(state, scope, field, item, count, to));
    } else if (field->type >= SBIT__ONNX_TEXT) {
        SBIT__TRY(
            sbit__read_str(state, field->type == SBIT__ONNX_TEXT, item, (sbit_str *)(void *)to));
    } else if (sbit__read_is_packed(field, item)) {
        SBIT__TRY(sbit__read_count_packed(state, scope, field, item, &added));
        const unsigned char *bad = added != 0 ? sbit__read_packed(field, item, to) : NULL;
        if (bad != NULL) {
            return sbit__read_fail(state, scope->frame, SBIT_ERR_PARSE, bad,
                                   "a varint of a packed list is longer than 10 bytes");
        }
    } else {
        sbit__read_number(field, item->value, to);
    }
    if (field->type < SBIT__ONNX_TEXT && sbit__read_is_packed(field, item) != field->packed) {
        msg->repacked |= 1u << field->number;
    }
    count += added;
    memcpy((char *)scope->message + field->count_offset, &count, sizeof(count));
    return SBIT_OK;
}

static void sbit__read_clear_oneof(const sbit__read_scope *scope, const sbit__onnx_field *keep)
{
    sbit_onnx_msg *msg = (sbit_onnx_msg *)scope->message;
    for (size_t i = 0; i < scope->schema->field_count; i++) {
        const sbit__onnx_field *field = &scope->schema->fields[i];
        if (!field->oneof || field == keep) {
            continue;
        }
        msg->has &= ~(1u << field->number);
        if (field->type == SBIT__ONNX_MESSAGE) {
            const void *none = NULL;
            memcpy((char *)scope->message + field->offset, &none, sizeof(none));
        }
    }
}

static sbit_status sbit__read_singular(sbit__read_state *state, const sbit__read_scope *scope,
                                       const sbit__onnx_field *field, const sbit__wire_item *item)
{
    sbit_onnx_msg *msg = (sbit_onnx_msg *)scope->message;
    char *member = (char *)scope->message + field->offset;
    if (field->oneof) {
        sbit__read_clear_oneof(scope, field);
    }
    if (field->type != SBIT__ONNX_MESSAGE) {
        msg->has |= 1u << field->number;
        if (field->type >= SBIT__ONNX_TEXT) {
            return sbit__read_str(state, field->type == SBIT__ONNX_TEXT, item,
                                  (sbit_str *)(void *)member);
        }
        sbit__read_number(field, item->value, member);
        return SBIT_OK;
    }
    void *sub = NULL;
    memcpy(&sub, member, sizeof(sub));
    if (sub == NULL) {
        const size_t size = sbit__onnx_schema_at(field->kind)->size;
        sub = sbit__arena_alloc(state->arena, size);
        if (sub == NULL) {
            return sbit__onnx_arena_fail(state->arena, size, state->error);
        }
        memcpy(member, &sub, sizeof(sub));
    }
    return sbit__read_sub(state, scope, field, item, SBIT__READ_SINGULAR, sub);
}

/* Second pass. */
static sbit_status sbit__read_fill(sbit__read_state *state, sbit__read_scope scope,
                                   sbit__read_unknown *unknown)
{
    size_t hint = 0;
    while (scope.p < scope.end) {
        sbit__wire_item item;
        const sbit__onnx_field *field = NULL;
        SBIT__TRY(sbit__read_next(state, &scope, &hint, &item, &field));
        if (field == NULL) {
            if (unknown->to != NULL) {
                const size_t size = (size_t)(item.end - item.start);
                memcpy(unknown->to, item.start, size);
                unknown->to += size;
            }
        } else if (field->repeated) {
            SBIT__TRY(sbit__read_repeated(state, &scope, field, &item));
        } else {
            SBIT__TRY(sbit__read_singular(state, &scope, field, &item));
        }
    }
    return SBIT_OK;
}

/* Reads into `message`, which is zeroed or already holds fields that the new ones are merged to. */
static sbit_status sbit__read_message(sbit__read_state *state, sbit__read_scope scope)
{
    sbit__read_unknown unknown;
    memset(&unknown, 0, sizeof(unknown));
    {
        size_t counts[SBIT__ONNX_MAX_FIELDS];
        memset(counts, 0, sizeof(counts));
        SBIT__TRY(sbit__read_count(state, scope, counts, &unknown));
        for (size_t i = 0; i < scope.schema->field_count; i++) {
            if (scope.schema->fields[i].repeated && counts[i] != 0) {
                SBIT__TRY(
                    sbit__read_reserve(state, scope.message, &scope.schema->fields[i], counts[i]));
            }
        }
    }
    SBIT__TRY(sbit__read_reserve_unknown(state, (sbit_onnx_msg *)scope.message, &unknown));
    return sbit__read_fill(state, scope, &unknown);
}

/* ---- documents ---- */

SBIT__FN const char *sbit__onnx_folder_of(sbit__arena *arena, const char *path)
{
    size_t size = 0;
    for (size_t i = 0; path[i] != '\0'; i++) {
#if defined(_WIN32)
        const bool separator = path[i] == '/' || path[i] == '\\';
#else
        const bool separator = path[i] == '/';
#endif
        size = separator ? (i == 0 ? 1 : i) : size; /* "/model.onnx" lies in "/" */
    }
    return size != 0 ? sbit__arena_strdup(arena, path, size) : ".";
}

static sbit_status sbit__onnx_doc_init(const sbit_onnx_read_desc *desc, sbit_onnx_doc **out,
                                       sbit_error *error)
{
    if (!sbit__allocator_valid(&desc->allocator)) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "the allocator must set all three functions or none");
    }
    if ((uint32_t)desc->kind >= (uint32_t)SBIT_ONNX_KIND_COUNT) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL, "no message kind has number %d",
                          (int)desc->kind);
    }
    const sbit_allocator allocator = sbit__allocator_or_default(&desc->allocator);
    sbit_onnx_doc *doc = (sbit_onnx_doc *)sbit__calloc(&allocator, 1, sizeof(sbit_onnx_doc));
    if (doc == NULL) {
        return sbit__fail_oom(error, sizeof(sbit_onnx_doc));
    }
    sbit__arena_init(&doc->arena, &allocator);
    sbit__map_init(&doc->range_of, &allocator);
    doc->kind = desc->kind == SBIT_ONNX_STRING_ENTRY ? SBIT_ONNX_MODEL : desc->kind;
    doc->folder = ".";
    doc->root = sbit__arena_alloc(&doc->arena, sbit__onnx_schema_at((int)doc->kind)->size);
    if (doc->root == NULL) {
        sbit_onnx_destroy(doc);
        return sbit__fail_oom(error, sbit__onnx_schema_at((int)desc->kind)->size);
    }
    *out = doc;
    return SBIT_OK;
}

static sbit_status sbit__onnx_doc_read(sbit_onnx_doc *doc, const void *bytes, size_t size,
                                       const sbit_onnx_read_desc *desc, sbit_error *error)
{
    static const unsigned char nothing[1] = {0};
    const uint32_t depth = desc->max_depth == 0 ? SBIT__READ_DEPTH : desc->max_depth;
    sbit__read_state state;
    sbit__read_scope scope;
    if (desc->max_file_bytes != 0 && size > desc->max_file_bytes) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL,
                          "the input of %llu bytes exceeds the limit of %llu bytes",
                          (unsigned long long)size, (unsigned long long)desc->max_file_bytes);
    }
    doc->arena.limit_bytes = desc->max_arena_bytes;
    if (desc->max_arena_bytes == 0 &&
        (!sbit__mul_size(size, 8, &doc->arena.limit_bytes) ||
         !sbit__add_size(doc->arena.limit_bytes, SBIT__READ_ARENA_BYTES,
                         &doc->arena.limit_bytes))) {
        doc->arena.limit_bytes = SIZE_MAX;
    }
    state.arena = &doc->arena;
    state.base = size != 0 ? (const unsigned char *)bytes : nothing;
    state.text = NULL;
    state.text_left = 0;
    state.error = error;
    scope.schema = sbit__onnx_schema_at((int)doc->kind);
    scope.message = doc->root;
    scope.p = state.base;
    scope.end = state.base + size;
    scope.frame = NULL;
    scope.depth = (depth < SBIT__READ_DEPTH_MAX ? depth : SBIT__READ_DEPTH_MAX) - 1;
    const sbit_status status = sbit__read_message(&state, scope);
    const bool empty = doc->kind == SBIT_ONNX_MODEL && sbit_onnx_doc_model(doc)->graph == NULL;
    const char *other = status != SBIT_OK || empty ? sbit__onnx_magic(state.base, size) : NULL;
    if (other != NULL && (status == SBIT_OK || status == SBIT_ERR_PARSE)) {
        return sbit__fail(error, SBIT_ERR_PARSE, "0", "the file is no ONNX %s, but %s",
                          doc->kind == SBIT_ONNX_MODEL ? "model" : "file", other);
    }
    SBIT__TRY(status);
    doc->arena.limit_bytes = 0; /* it bounds what input makes us allocate, not the document's use */
    return SBIT_OK;
}

static sbit_status sbit__onnx_doc_load(sbit_onnx_doc *doc, const char *path,
                                       const sbit_onnx_read_desc *desc, sbit_error *error)
{
    doc->folder = sbit__onnx_folder_of(&doc->arena, path);
    if (doc->folder == NULL) {
        return sbit__fail_oom(error, strlen(path));
    }
    SBIT__TRY(sbit__file_open(&doc->arena.allocator, path, &doc->file, error));
    return sbit__onnx_doc_read(doc, doc->file.data, doc->file.size, desc, error);
}

SPARSEBIT_API sbit_status sbit_onnx_load(const char *path, const sbit_onnx_read_desc *desc,
                                         sbit_onnx_doc **out, sbit_error *error)
{
    sbit_onnx_read_desc defaults;
    sbit_onnx_doc *doc = NULL;
    memset(&defaults, 0, sizeof(defaults));
    desc = desc != NULL ? desc : &defaults;
    SBIT__TRY(sbit__onnx_doc_init(desc, &doc, error));
    const sbit_status status = sbit__onnx_doc_load(doc, path, desc, error);
    if (status != SBIT_OK) {
        sbit_onnx_destroy(doc);
        return status;
    }
    *out = doc;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_onnx_read(const void *bytes, size_t size,
                                         const sbit_onnx_read_desc *desc, sbit_onnx_doc **out,
                                         sbit_error *error)
{
    sbit_onnx_read_desc defaults;
    sbit_onnx_doc *doc = NULL;
    memset(&defaults, 0, sizeof(defaults));
    desc = desc != NULL ? desc : &defaults;
    SBIT__TRY(sbit__onnx_doc_init(desc, &doc, error));
    const sbit_status status = sbit__onnx_doc_read(doc, bytes, size, desc, error);
    if (status != SBIT_OK) {
        sbit_onnx_destroy(doc);
        return status;
    }
    *out = doc;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_onnx_create(const sbit_onnx_read_desc *desc, sbit_onnx_doc **out,
                                           sbit_error *error)
{
    sbit_onnx_read_desc defaults;
    sbit_onnx_doc *doc = NULL;
    memset(&defaults, 0, sizeof(defaults));
    desc = desc != NULL ? desc : &defaults;
    SBIT__TRY(sbit__onnx_doc_init(desc, &doc, error));
    doc->arena.limit_bytes = desc->max_arena_bytes;
    *out = doc;
    return SBIT_OK;
}

SPARSEBIT_API void sbit_onnx_destroy(sbit_onnx_doc *doc)
{
    if (doc == NULL) {
        return;
    }
    const sbit_allocator allocator = doc->arena.allocator;
    sbit__onnx_external_close_all(doc);
    sbit__file_close(&doc->file);
    sbit__arena_deinit(&doc->arena);
    sbit__free(&allocator, doc, sizeof(sbit_onnx_doc));
}

SPARSEBIT_API sbit_onnx_kind sbit_onnx_doc_kind(const sbit_onnx_doc *doc)
{
    return doc->kind;
}

SPARSEBIT_API void *sbit_onnx_doc_root(sbit_onnx_doc *doc)
{
    return doc->root;
}

SPARSEBIT_API sbit_onnx_model *sbit_onnx_doc_model(sbit_onnx_doc *doc)
{
    return doc->kind == SBIT_ONNX_MODEL ? (sbit_onnx_model *)doc->root : NULL;
}

SPARSEBIT_API const char *sbit_onnx_doc_folder(const sbit_onnx_doc *doc)
{
    return doc->folder;
}

SPARSEBIT_API void *sbit_onnx_alloc(sbit_onnx_doc *doc, size_t count, size_t bytes_each)
{
    return sbit__arena_array(&doc->arena, count, bytes_each);
}

SPARSEBIT_API sbit_status sbit_onnx_text(sbit_onnx_doc *doc, const char *text, size_t size,
                                         sbit_str *out, sbit_error *error)
{
    char *copy = sbit__arena_strdup(&doc->arena, text, size);
    if (copy == NULL) {
        return sbit__onnx_arena_fail(&doc->arena, size, error);
    }
    out->data = copy;
    out->size = size;
    return SBIT_OK;
}
#undef SBIT__READ_DEPTH
#undef SBIT__READ_DEPTH_MAX
#undef SBIT__READ_ARENA_BYTES
#undef SBIT__READ_TEXT_CHUNK
#undef SBIT__READ_SINGULAR
/* ---- end src/onnx/read.c ---- */

/* ---- begin src/onnx/tensor.c ---- */
/* tensor.c: element types, and the elements of a TensorProto. >>tensor
 *
 * Called by: users, import, write, check. Calls: external, arena.
 * Does: give the elements as one block, whichever field they are stored in, after its length was
 * checked against dims. onnx.proto, TensorProto:
 *     raw_data      every type but string; little-endian, 2 and 4 bit types packed low bits first
 *     float_data    float32; complex64 as pairs
 *     double_data   float64; complex128 as pairs
 *     int32_data    int32 and everything narrower, one value an element; float16 and bfloat16 as
 *                   their bits; of 4 and 2 bit types one packed byte an element
 *     int64_data    int64
 *     uint64_data   uint64, uint32
 *     string_data   string
 */

typedef struct sbit__tensor_dtype_row {
    const char *name;
    int bits;
} sbit__tensor_dtype_row;

static const sbit__tensor_dtype_row sbit__tensor_dtypes[] = {
#define SBIT__TENSOR_DTYPE_ROW(name, number, bits, text) {text, bits},
    SBIT_DTYPE_LIST(SBIT__TENSOR_DTYPE_ROW)
#undef SBIT__TENSOR_DTYPE_ROW
};

SPARSEBIT_API const char *sbit_dtype_name(int32_t dtype)
{
    return dtype >= 0 && dtype < (int32_t)SBIT_DTYPE_COUNT ? sbit__tensor_dtypes[dtype].name
                                                           : "unknown";
}

SPARSEBIT_API int sbit_dtype_bits(int32_t dtype)
{
    return dtype >= 0 && dtype < (int32_t)SBIT_DTYPE_COUNT ? sbit__tensor_dtypes[dtype].bits : 0;
}

SPARSEBIT_API bool sbit_dtype_bytes(int32_t dtype, int64_t count, size_t *bytes)
{
    const int bits = sbit_dtype_bits(dtype);
    if (bits == 0 || count < 0 || (uint64_t)count > SIZE_MAX) {
        return false;
    }
    if (bits < 8) {
        *bytes = (size_t)count / 8 * (size_t)bits + ((size_t)count % 8 * (size_t)bits + 7) / 8;
        return true;
    }
    return sbit__mul_size((size_t)count, (size_t)bits / 8, bytes);
}

SBIT__FN bool sbit__onnx_host_is_little(void)
{
    const uint16_t probe = 1;
    unsigned char first = 0;
    memcpy(&first, &probe, 1);
    return first == 1;
}

SBIT__FN const char *sbit__onnx_tensor_label(const sbit_onnx_tensor *tensor)
{
    return tensor->name.size != 0 ? tensor->name.data : "(unnamed)";
}

SBIT__FN bool sbit__onnx_is_external(const sbit_onnx_tensor *tensor)
{
    return SBIT_ONNX_HAS(tensor, SBIT_ONNX_TENSOR_DATA_LOCATION) != 0 &&
           tensor->data_location == SBIT__ONNX_EXTERNAL;
}

SPARSEBIT_API sbit_status sbit_onnx_tensor_count(const sbit_onnx_tensor *tensor, int64_t *count,
                                                 sbit_error *error)
{
    const char *label = sbit__onnx_tensor_label(tensor);
    for (size_t i = 0; i < tensor->dims_count; i++) {
        if (tensor->dims[i] < 0) {
            return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                              "tensor '%s': dimension %llu is %lld", label, (unsigned long long)i,
                              (long long)tensor->dims[i]);
        }
    }
    if (!sbit__dims_count(tensor->dims, tensor->dims_count, count)) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                          "tensor '%s': the product of its dimensions overflows", label);
    }
    return SBIT_OK;
}

/* The typed field that onnx.proto assigns to an element type. */
typedef struct sbit__tensor_store {
    const char *field;
    const void *data;
    size_t count;      /* elements of the field */
    size_t each_bytes; /* of one element of the field */
    size_t used_bytes; /* low bytes of each that raw_data would hold */
} sbit__tensor_store;

static void sbit__tensor_store_set(sbit__tensor_store *store, const char *field, const void *data,
                                   size_t count, size_t each_bytes, size_t used_bytes)
{
    store->field = field;
    store->data = data;
    store->count = count;
    store->each_bytes = each_bytes;
    store->used_bytes = used_bytes;
}

static void sbit__tensor_store_of(const sbit_onnx_tensor *t, sbit__tensor_store *store)
{
    switch (t->data_type) {
    case SBIT_F32:
    case SBIT_C64:
        sbit__tensor_store_set(store, "float_data", t->float_data, t->float_data_count, 4, 4);
        return;
    case SBIT_F64:
    case SBIT_C128:
        sbit__tensor_store_set(store, "double_data", t->double_data, t->double_data_count, 8, 8);
        return;
    case SBIT_I64:
        sbit__tensor_store_set(store, "int64_data", t->int64_data, t->int64_data_count, 8, 8);
        return;
    case SBIT_U32:
    case SBIT_U64:
        sbit__tensor_store_set(store, "uint64_data", t->uint64_data, t->uint64_data_count, 8,
                               t->data_type == SBIT_U32 ? 4 : 8);
        return;
    default: {
        const int bits = sbit_dtype_bits(t->data_type);
        sbit__tensor_store_set(store, "int32_data", t->int32_data, t->int32_data_count, 4,
                               bits <= 8 ? 1 : (size_t)bits / 8);
        return;
    }
    }
}

/* raw_data counts unless it is empty beside a typed field with elements, as some tools write. */
static bool sbit__tensor_is_raw(const sbit_onnx_tensor *tensor, const sbit__tensor_store *store)
{
    return SBIT_ONNX_HAS(tensor, SBIT_ONNX_TENSOR_RAW_DATA) != 0 &&
           (tensor->raw_data.size != 0 || store->count == 0);
}

/* Entries that the typed field has: float6 has one for each element, narrower types one a byte. */
static size_t sbit__tensor_entries(const sbit_onnx_tensor *tensor, const sbit__tensor_store *store,
                                   int64_t count, size_t bytes)
{
    return sbit_dtype_bits(tensor->data_type) == 6 ? (size_t)count : bytes / store->used_bytes;
}

SBIT__FN sbit_status sbit__onnx_tensor_bytes(const sbit_onnx_tensor *tensor, size_t *bytes,
                                             sbit_error *error)
{
    const char *label = sbit__onnx_tensor_label(tensor);
    const char *dtype = sbit_dtype_name(tensor->data_type);
    int64_t count = 0;
    size_t wanted = 0;
    sbit__tensor_store store;
    SBIT__TRY(sbit_onnx_tensor_count(tensor, &count, error));
    if (sbit_dtype_bits(tensor->data_type) == 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                          "tensor '%s': element type %d (%s) has no fixed size", label,
                          (int)tensor->data_type, dtype);
    }
    if (tensor->segment != NULL) {
        return sbit__fail(error, SBIT_ERR_UNSUPPORTED, label,
                          "tensor '%s': data in segments is not supported", label);
    }
    if (!sbit_dtype_bytes(tensor->data_type, count, &wanted)) {
        return sbit__fail(error, SBIT_ERR_LIMIT, label,
                          "tensor '%s': %lld elements exceed the address space", label,
                          (long long)count);
    }
    if (sbit__onnx_is_external(tensor)) {
        sbit__onnx_external external;
        SBIT__TRY(sbit__onnx_external_info(tensor, &external, error));
        if (external.length != UINT64_MAX && external.length != wanted) {
            return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                              "tensor '%s': external data has length %llu, dims and type (%s) "
                              "need %llu bytes",
                              label, (unsigned long long)external.length, dtype,
                              (unsigned long long)wanted);
        }
        *bytes = wanted;
        return SBIT_OK;
    }
    sbit__tensor_store_of(tensor, &store);
    if (sbit__tensor_is_raw(tensor, &store)) {
        if (tensor->raw_data.size != wanted) {
            return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                              "tensor '%s': raw_data has %llu bytes, dims and type (%s) need %llu",
                              label, (unsigned long long)tensor->raw_data.size, dtype,
                              (unsigned long long)wanted);
        }
    } else if (store.count != sbit__tensor_entries(tensor, &store, count, wanted)) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                          "tensor '%s': %s has %llu elements, dims and type (%s) need %llu", label,
                          store.field, (unsigned long long)store.count, dtype,
                          (unsigned long long)sbit__tensor_entries(tensor, &store, count, wanted));
    }
    *bytes = wanted;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__onnx_swapped(sbit__arena *arena, int32_t dtype, sbit_str *view,
                                        sbit_error *error)
{
    const size_t bytes = (size_t)sbit_dtype_bits(dtype) / 8;
    const size_t unit = dtype == SBIT_C64 || dtype == SBIT_C128 ? bytes / 2 : bytes;
    if (unit <= 1 || view->size == 0) {
        return SBIT_OK;
    }
    char *copy = (char *)sbit__arena_alloc(arena, view->size);
    if (copy == NULL) {
        return sbit__onnx_arena_fail(arena, view->size, error);
    }
    for (size_t i = 0; i < view->size; i += unit) {
        for (size_t j = 0; j < unit; j++) {
            copy[i + j] = view->data[i + unit - 1 - j];
        }
    }
    view->data = copy;
    return SBIT_OK;
}

/* The low bytes of each element of the field, in the host's byte order. */
static sbit_status sbit__tensor_narrow(sbit__arena *arena, const sbit_onnx_tensor *tensor,
                                       const sbit__tensor_store *store, size_t bytes, sbit_str *out,
                                       sbit_error *error)
{
    const size_t skip = sbit__onnx_host_is_little() ? 0 : store->each_bytes - store->used_bytes;
    const unsigned char *from = (const unsigned char *)store->data + skip;
    unsigned char *to = (unsigned char *)sbit__arena_alloc(arena, bytes);
    if (to == NULL) {
        return sbit__onnx_arena_fail(arena, bytes, error);
    }
    out->data = (const char *)to;
    out->size = bytes;
    if (sbit_dtype_bits(tensor->data_type) == 6) {
        memset(to, 0, bytes);
        for (size_t i = 0; i < store->count; i++) {
            sbit__packed_set(to, (int64_t)i, 6, tensor->int32_data[i] & 63);
        }
        return SBIT_OK;
    }
    for (size_t i = 0; i < store->count; i++) {
        memcpy(to, from, store->used_bytes);
        to += store->used_bytes;
        from += store->each_bytes;
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__onnx_tensor_view(sbit__arena *arena, const sbit_onnx_tensor *tensor,
                                            bool little_endian, sbit_str *out, sbit_error *error)
{
    size_t bytes = 0;
    bool is_little = true; /* of the view so far */
    sbit__tensor_store store;
    sbit_str view;
    SBIT__TRY(sbit__onnx_tensor_bytes(tensor, &bytes, error));
    sbit__tensor_store_of(tensor, &store);
    view.data = "";
    view.size = 0;
    if (bytes == 0) {
        *out = view;
        return SBIT_OK;
    }
    if (sbit__tensor_is_raw(tensor, &store)) {
        view = tensor->raw_data;
    } else if (store.used_bytes == store.each_bytes) {
        view.data = (const char *)store.data;
        view.size = bytes;
        is_little = sbit__onnx_host_is_little();
    } else {
        SBIT__TRY(sbit__tensor_narrow(arena, tensor, &store, bytes, &view, error));
        is_little = sbit__onnx_host_is_little();
    }
    if (is_little != (little_endian || sbit__onnx_host_is_little())) {
        SBIT__TRY(sbit__onnx_swapped(arena, tensor->data_type, &view, error));
    }
    *out = view;
    return SBIT_OK;
}

SPARSEBIT_API sbit_status sbit_onnx_tensor_data(sbit_onnx_doc *doc, const sbit_onnx_tensor *tensor,
                                                sbit_str *out, sbit_error *error)
{
    if (tensor->data_type == SBIT_STRING) {
        const char *label = sbit__onnx_tensor_label(tensor);
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, label,
                          "tensor '%s' holds strings: read its string_data", label);
    }
    if (!sbit__onnx_is_external(tensor)) {
        return sbit__onnx_tensor_view(&doc->arena, tensor, false, out, error);
    }
    sbit_str view;
    SBIT__TRY(sbit__onnx_external_view(doc, tensor, &view, error));
    if (!sbit__onnx_host_is_little()) {
        SBIT__TRY(sbit__onnx_swapped(&doc->arena, tensor->data_type, &view, error));
    }
    *out = view;
    return SBIT_OK;
}
/* ---- end src/onnx/tensor.c ---- */

/* ---- begin src/onnx/external.c ---- */
/* external.c: tensors whose bytes lie in a file beside the model. >>external
 *
 * Called by: tensor, write. Calls: files, schema.
 * TensorProto.data_location = EXTERNAL, and external_data holds text pairs:
 *     location  path relative to the model's folder; must stay inside it
 *     offset    first byte, decimal; default 0
 *     length    bytes, decimal; default: what dims and type need
 *     other     (checksum, ...) not looked at
 * Does: read by range on demand; lay tensors out in one file for a save.
 * Does not: follow `location` out of the folder. Symbolic links inside it are the user's.
 */

#define SBIT__EXTERNAL_AUTO_BYTES ((size_t)1024)
#define SBIT__EXTERNAL_MESSAGE_BYTES UINT64_C(0x7fffffff) /* protobuf's limit for one message */
#define SBIT__EXTERNAL_KEY_BYTES 512

SBIT__FN bool sbit__onnx_location_is_safe(const char *name, size_t size)
{
    if (size == 0 || memchr(name, '\0', size) != NULL || memchr(name, ':', size) != NULL ||
        name[0] == '/' || name[0] == '\\') {
        return false; /* ':' is a drive letter or a stream on Windows */
    }
    size_t start = 0;
    for (size_t i = 0; i <= size; i++) {
        if (i == size || name[i] == '/' || name[i] == '\\') {
            if (i - start == 2 && name[start] == '.' && name[start + 1] == '.') {
                return false;
            }
            start = i + 1;
        }
    }
    return true;
}

static sbit_status sbit__external_number(const sbit_onnx_tensor *tensor,
                                         const sbit_onnx_string_entry *entry, uint64_t *out,
                                         sbit_error *error)
{
    int64_t value = 0;
    if (entry->value.size == 0 || !sbit__parse_i64(entry->value.data, &value) || value < 0) {
        const char *label = sbit__onnx_tensor_label(tensor);
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                          "tensor '%s': external_data %s '%s' is not a number of bytes", label,
                          entry->key.data, entry->value.size != 0 ? entry->value.data : "");
    }
    *out = (uint64_t)value;
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__onnx_external_info(const sbit_onnx_tensor *tensor,
                                              sbit__onnx_external *out, sbit_error *error)
{
    const char *label = sbit__onnx_tensor_label(tensor);
    sbit__onnx_external info;
    sbit_str location = sbit__str(NULL);
    info.offset = 0;
    info.length = UINT64_MAX;
    for (size_t i = 0; i < tensor->external_data_count; i++) {
        const sbit_onnx_string_entry *entry = &tensor->external_data[i];
        if (sbit__streq(entry->key.data, "location")) {
            location = entry->value;
        } else if (sbit__streq(entry->key.data, "offset")) {
            SBIT__TRY(sbit__external_number(tensor, entry, &info.offset, error));
        } else if (sbit__streq(entry->key.data, "length")) {
            SBIT__TRY(sbit__external_number(tensor, entry, &info.length, error));
        }
    }
    if (location.size == 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                          "tensor '%s': external data has no location", label);
    }
    if (!sbit__onnx_location_is_safe(location.data, location.size)) {
        return sbit__fail(error, SBIT_ERR_INVALID_MODEL, label,
                          "tensor '%s': external data location '%s' leaves the model's folder",
                          label, location.data);
    }
    info.location = location.data;
    *out = info;
    return SBIT_OK;
}

/* Whether the file is what git-LFS leaves in the place of one: a page of text at most. */
static bool sbit__external_is_pointer(const sbit_allocator *allocator, const char *path)
{
    static const char head[] = "version https://git-lfs";
    sbit__file file;
    if (sbit__file_open_range(allocator, path, 0, sizeof head - 1, &file, NULL) != SBIT_OK ||
        file.data == NULL) {
        return false;
    }
    const bool is = memcmp(file.data, head, sizeof head - 1) == 0;
    sbit__file_close(&file);
    return is;
}

static sbit_status sbit__external_open_in(const sbit_onnx_doc *doc, const sbit__onnx_external *info,
                                          size_t bytes, sbit__file *out, sbit_error *error)
{
    const sbit_allocator *allocator = &doc->arena.allocator;
    const size_t size = strlen(doc->folder) + strlen(info->location) + 2;
    char *path = (char *)sbit__alloc(allocator, size);
    if (path == NULL) {
        return sbit__fail_oom(error, size);
    }
    snprintf(path, size, "%s/%s", doc->folder, info->location);
    sbit_status status = sbit__file_open_range(allocator, path, info->offset, bytes, out, error);
    if ((status != SBIT_OK || info->offset + bytes <= 1024) &&
        sbit__external_is_pointer(allocator, path)) {
        if (status == SBIT_OK) {
            sbit__file_close(out);
        }
        status = sbit__fail(error, SBIT_ERR_PARSE, info->location,
                            "'%s' is a git-LFS pointer, which stands for the real file: fetch that "
                            "(git lfs pull)",
                            info->location);
    }
    sbit__free(allocator, path, size);
    return status;
}

SBIT__FN sbit_status sbit__onnx_external_open(const sbit_onnx_doc *doc,
                                              const sbit_onnx_tensor *tensor, sbit__file *out,
                                              sbit_error *error)
{
    sbit__onnx_external info;
    size_t bytes = 0;
    SBIT__TRY(sbit__onnx_tensor_bytes(tensor, &bytes, error));
    SBIT__TRY(sbit__onnx_external_info(tensor, &info, error));
    if (bytes == 0) {
        memset(out, 0, sizeof(*out));
        return SBIT_OK;
    }
    const sbit_status status = sbit__external_open_in(doc, &info, bytes, out, error);
    if (status != SBIT_OK && error != NULL) {
        const char *label = sbit__onnx_tensor_label(tensor);
        return sbit__fail(error, status, label, "tensor '%s': %s", label, error->message);
    }
    return status;
}

SBIT__FN sbit_status sbit__onnx_external_view(sbit_onnx_doc *doc, const sbit_onnx_tensor *tensor,
                                              sbit_str *out, sbit_error *error)
{
    char key[SBIT__EXTERNAL_KEY_BYTES];
    sbit__onnx_external info;
    size_t bytes = 0;
    uint32_t idx = 0;
    sbit__file file;
    SBIT__TRY(sbit__onnx_tensor_bytes(tensor, &bytes, error));
    SBIT__TRY(sbit__onnx_external_info(tensor, &info, error));
    if (bytes == 0) {
        *out = sbit__str("");
        return SBIT_OK;
    }
    const int key_size = snprintf(key, sizeof(key), "%llu:%llu:%s", (unsigned long long)info.offset,
                                  (unsigned long long)bytes, info.location);
    const bool keyed = key_size > 0 && (size_t)key_size < sizeof(key);
    if (keyed && sbit__map_find(&doc->range_of, key, &idx)) {
        out->data = (const char *)doc->ranges[idx].data;
        out->size = bytes;
        return SBIT_OK;
    }
    void *ranges = doc->ranges;
    SBIT__TRY(sbit__grow(&doc->arena.allocator, &ranges, &doc->range_capacity, doc->range_count + 1,
                         sizeof(sbit__file), error));
    doc->ranges = (sbit__file *)ranges;
    SBIT__TRY(sbit__onnx_external_open(doc, tensor, &file, error));
    doc->ranges[doc->range_count++] = file; /* owned from here on, whatever comes next */
    if (keyed) {
        const char *kept = sbit__arena_strdup(&doc->arena, key, (size_t)key_size);
        if (kept == NULL) {
            return sbit__onnx_arena_fail(&doc->arena, (size_t)key_size, error);
        }
        SBIT__TRY(sbit__map_set(&doc->range_of, kept, (uint32_t)(doc->range_count - 1), error));
    }
    out->data = (const char *)file.data;
    out->size = bytes;
    return SBIT_OK;
}

SBIT__FN void sbit__onnx_external_close_all(sbit_onnx_doc *doc)
{
    for (size_t i = 0; i < doc->range_count; i++) {
        sbit__file_close(&doc->ranges[i]);
    }
    sbit__free(&doc->arena.allocator, doc->ranges, doc->range_capacity * sizeof(sbit__file));
    sbit__map_deinit(&doc->range_of);
    doc->ranges = NULL;
    doc->range_count = 0;
    doc->range_capacity = 0;
}

SBIT__FN void sbit__onnx_forget(const sbit_onnx_doc *doc, const void *data, size_t size)
{
    sbit__file_forget(&doc->file, data, size);
    for (size_t i = 0; i < doc->range_count; i++) {
        sbit__file_forget(&doc->ranges[i], data, size);
    }
}

/* ---- laying tensors out for a save ---- */

static sbit_status sbit__external_sum(const sbit_onnx_tensor *tensor,
                                      const sbit__onnx_field *parent, void *user, sbit_error *error)
{
    uint64_t *sum = (uint64_t *)user;
    size_t bytes = 0;
    (void)parent;
    if (sbit__onnx_is_external(tensor)) {
        SBIT__TRY(sbit__onnx_tensor_bytes(tensor, &bytes, error));
        *sum = *sum > UINT64_MAX - bytes ? UINT64_MAX : *sum + bytes;
    }
    return SBIT_OK;
}

static bool sbit__external_is_initializer(const sbit__onnx_field *parent)
{
    return parent != NULL && parent->number == SBIT_ONNX_GRAPH_INITIALIZER &&
           strcmp(parent->name, "initializer") == 0;
}

typedef struct sbit__external_planner {
    sbit__onnx_plan *plan;
    sbit_onnx_doc *doc;
} sbit__external_planner;

static sbit_status sbit__external_append(sbit__onnx_plan *plan, const sbit_onnx_tensor *tensor,
                                         bool from_file, size_t bytes, sbit_error *error)
{
    sbit__onnx_place place;
    void *places = plan->places;
    place.tensor = tensor;
    place.from_file = from_file;
    place.to_file = bytes >= plan->above_bytes && bytes != 0;
    place.bytes = bytes;
    place.offset = 0;
    if (place.to_file) {
        const uint64_t gap = (plan->align - plan->file_bytes % plan->align) % plan->align;
        if (plan->file_bytes > (uint64_t)INT64_MAX - bytes - gap) {
            return sbit__fail(error, SBIT_ERR_LIMIT, NULL, "the external file exceeds 2^63 bytes");
        }
        place.offset = plan->file_bytes + gap;
        plan->file_bytes = place.offset + bytes;
    }
    SBIT__TRY(sbit__grow(&plan->allocator, &places, &plan->capacity, plan->count + 1,
                         sizeof(sbit__onnx_place), error));
    plan->places = (sbit__onnx_place *)places;
    plan->places[plan->count++] = place;
    return SBIT_OK;
}

/* Readers expect external data of initializers only: other tensors stay inside. */
static sbit_status sbit__external_consider(const sbit_onnx_tensor *tensor,
                                           const sbit__onnx_field *parent, void *user,
                                           sbit_error *error)
{
    const sbit__external_planner *planner = (const sbit__external_planner *)user;
    sbit__onnx_plan *plan = planner->plan;
    size_t bytes = 0;
    if (sbit__onnx_is_external(tensor)) {
        sbit__onnx_external info;
        sbit_str kept;
        SBIT__TRY(sbit__onnx_tensor_bytes(tensor, &bytes, error));
        SBIT__TRY(sbit__onnx_external_info(tensor, &info, error));
        if (sbit__streq(info.location, plan->location)) {
            /* the save may replace this file: hold on to what the document refers to */
            SBIT__TRY(sbit__onnx_external_view(planner->doc, tensor, &kept, error));
        }
        return sbit__external_append(plan, tensor, true, bytes, error);
    }
    if (!sbit__external_is_initializer(parent) ||
        sbit__onnx_tensor_bytes(tensor, &bytes, NULL) != SBIT_OK || bytes == 0 ||
        bytes < plan->above_bytes) {
        return SBIT_OK; /* written as it is */
    }
    return sbit__external_append(plan, tensor, false, bytes, error);
}

SBIT__FN sbit_status sbit__onnx_plan_build(sbit__onnx_plan *plan, sbit_onnx_doc *doc,
                                           sbit_error *error)
{
    sbit__external_planner planner;
    planner.plan = plan;
    planner.doc = doc;
    if (plan->above_bytes == 0) {
        uint64_t outside = 0;
        SBIT__TRY(
            sbit__onnx_visit_tensors(doc->kind, doc->root, sbit__external_sum, &outside, error));
        const uint64_t inside = sbit_onnx_measure(doc->kind, doc->root);
        const bool fits = outside <= SBIT__EXTERNAL_MESSAGE_BYTES &&
                          inside <= SBIT__EXTERNAL_MESSAGE_BYTES - outside;
        plan->above_bytes = fits ? SIZE_MAX : SBIT__EXTERNAL_AUTO_BYTES;
    }
    return sbit__onnx_visit_tensors(doc->kind, doc->root, sbit__external_consider, &planner, error);
}

static sbit_status sbit__external_pad(sbit__writer *writer, uint64_t offset, sbit_error *error)
{
    static const unsigned char zeros[256] = {0};
    while (writer->written < offset) {
        const uint64_t gap = offset - writer->written;
        SBIT__TRY(sbit__writer_put(writer, zeros, gap < sizeof(zeros) ? (size_t)gap : sizeof(zeros),
                                   error));
    }
    return SBIT_OK;
}

SBIT__FN sbit_status sbit__onnx_plan_write(const sbit__onnx_plan *plan, const sbit_onnx_doc *doc,
                                           sbit__writer *writer, sbit_error *error)
{
    for (size_t i = 0; i < plan->count; i++) {
        const sbit__onnx_place *place = &plan->places[i];
        sbit_status status = SBIT_OK;
        if (!place->to_file) {
            continue;
        }
        SBIT__TRY(sbit__external_pad(writer, place->offset, error));
        if (place->from_file) {
            sbit__file file;
            SBIT__TRY(sbit__onnx_external_open(doc, place->tensor, &file, error));
            status = sbit__writer_put(writer, file.data, file.size, error);
            sbit__file_close(&file);
        } else {
            sbit__arena scratch;
            sbit_str view;
            sbit__arena_init(&scratch, &plan->allocator);
            status = sbit__onnx_tensor_view(&scratch, place->tensor, true, &view, error);
            if (status == SBIT_OK) {
                status = sbit__writer_put(writer, view.data, view.size, error);
            }
            sbit__arena_deinit(&scratch);
        }
        SBIT__TRY(status);
    }
    return SBIT_OK;
}
#undef SBIT__EXTERNAL_AUTO_BYTES
#undef SBIT__EXTERNAL_MESSAGE_BYTES
#undef SBIT__EXTERNAL_KEY_BYTES
/* ---- end src/onnx/external.c ---- */

/* ---- begin src/onnx/write.c ---- */
/* write.c: messages to bytes and files. >>write
 *
 * Called by: users, export. Calls: wire, schema, external, files.
 * Does: write fields by ascending number and unknown ones last, as protobuf's own writers do, so
 * that a file from one of them comes back byte for byte. Measuring is writing without a buffer.
 * A save keeps large `bytes` fields out of the buffer and copies them from where they lie.
 *
 * All goes backwards (see wire): last field first, last element first.
 */

#define SBIT__WRITE_REF_BYTES ((size_t)4096)           /* larger bytes fields are not buffered */
#define SBIT__WRITE_MESSAGE_BYTES UINT64_C(0x7fffffff) /* protobuf's limit for one message */
#define SBIT__WRITE_ALIGN 4096u

/* Bytes that belong into the output but not into the buffer. */
typedef struct sbit__write_ref {
    const void *data;
    size_t size;
    const sbit__onnx_place *place; /* read from its file; NULL: data */
    size_t tail;                   /* buffered bytes that follow */
} sbit__write_ref;

typedef struct sbit__write_state {
    sbit__wire_out out;
    const sbit__onnx_plan *plan; /* NULL: tensors as they are, everything buffered */
    size_t places_left;          /* plan entries not met yet: they are met in reverse order */
    sbit__write_ref *refs;       /* NULL: only count */
    size_t ref_count;
    uint64_t ref_bytes;
} sbit__write_state;

static void sbit__write_message(sbit__write_state *state, int kind, const void *message);

static void sbit__write_refer(sbit__write_state *state, const void *data, size_t size,
                              const sbit__onnx_place *place)
{
    if (state->refs != NULL) {
        sbit__write_ref *ref = &state->refs[state->ref_count];
        ref->data = data;
        ref->size = size;
        ref->place = place;
        ref->tail = (size_t)(state->out.total - state->ref_bytes);
    }
    state->ref_count++;
    state->ref_bytes += size;
    state->out.total += size;
}

static void sbit__write_str(sbit__write_state *state, const sbit__onnx_field *field, sbit_str str)
{
    if (state->plan != NULL && field->type == SBIT__ONNX_BYTES &&
        str.size >= SBIT__WRITE_REF_BYTES) {
        sbit__write_refer(state, str.data, str.size, NULL);
    } else {
        sbit__wire_put_bytes(&state->out, str.data, str.size);
    }
    sbit__wire_put_varint(&state->out, str.size);
    sbit__wire_put_tag(&state->out, field->number, SBIT__WIRE_LENGTH);
}

static void sbit__write_number(sbit__write_state *state, const sbit__onnx_field *field,
                               const void *value)
{
    uint64_t wide = 0;
    uint32_t narrow = 0;
    int32_t signed32 = 0;
    switch (field->type) {
    case SBIT__ONNX_INT32:
        memcpy(&signed32, value, sizeof(signed32));
        sbit__wire_put_varint(&state->out, (uint64_t)(int64_t)signed32);
        return;
    case SBIT__ONNX_FLOAT:
        memcpy(&narrow, value, sizeof(narrow));
        sbit__wire_put_fixed32(&state->out, narrow);
        return;
    case SBIT__ONNX_DOUBLE:
        memcpy(&wide, value, sizeof(wide));
        sbit__wire_put_fixed64(&state->out, wide);
        return;
    default:
        memcpy(&wide, value, sizeof(wide));
        sbit__wire_put_varint(&state->out, wide);
        return;
    }
}

static void sbit__write_sub(sbit__write_state *state, const sbit__onnx_field *field,
                            const void *sub)
{
    const uint64_t before = state->out.total;
    sbit__write_message(state, field->kind, sub);
    sbit__wire_put_varint(&state->out, state->out.total - before);
    sbit__wire_put_tag(&state->out, field->number, SBIT__WIRE_LENGTH);
}

static void sbit__write_packed(sbit__write_state *state, const sbit__onnx_field *field,
                               const char *elements, size_t count)
{
    const size_t each = sbit__onnx_element_bytes(field);
    const uint64_t before = state->out.total;
    if (sbit__onnx_wire_of_element(field) != SBIT__WIRE_VARINT && sbit__onnx_host_is_little()) {
        sbit__wire_put_bytes(&state->out, elements, count * each);
    } else {
        for (size_t i = count; i-- > 0;) {
            sbit__write_number(state, field, elements + i * each);
        }
    }
    sbit__wire_put_varint(&state->out, state->out.total - before);
    sbit__wire_put_tag(&state->out, field->number, SBIT__WIRE_LENGTH);
}

static void sbit__write_repeated(sbit__write_state *state, const sbit__onnx_field *field,
                                 const void *message)
{
    const size_t count = sbit__onnx_count(message, field);
    const size_t each = sbit__onnx_element_bytes(field);
    const char *elements = (const char *)sbit__onnx_pointer(message, field);
    const bool repacked = ((((const sbit_onnx_msg *)message)->repacked >> field->number) & 1u) != 0;
    if (count == 0) {
        return;
    }
    if (field->type < SBIT__ONNX_TEXT && field->packed != repacked) {
        sbit__write_packed(state, field, elements, count);
        return;
    }
    for (size_t i = count; i-- > 0;) {
        const char *element = elements + i * each;
        if (field->type == SBIT__ONNX_MESSAGE) {
            sbit__write_sub(state, field, element);
        } else if (field->type >= SBIT__ONNX_TEXT) {
            sbit_str str;
            memcpy(&str, element, sizeof(str));
            sbit__write_str(state, field, str);
        } else {
            sbit__write_number(state, field, element);
            sbit__wire_put_tag(&state->out, field->number, sbit__onnx_wire_of_element(field));
        }
    }
}

static void sbit__write_singular(sbit__write_state *state, const sbit__onnx_field *field,
                                 const void *message)
{
    if (field->type == SBIT__ONNX_MESSAGE) {
        const void *sub = sbit__onnx_pointer(message, field);
        if (sub != NULL) {
            sbit__write_sub(state, field, sub);
        }
    } else if (!sbit__onnx_has(message, field)) {
        return;
    } else if (field->type >= SBIT__ONNX_TEXT) {
        sbit_str str;
        memcpy(&str, sbit__onnx_member(message, field), sizeof(str));
        sbit__write_str(state, field, str);
    } else {
        sbit__write_number(state, field, sbit__onnx_member(message, field));
        sbit__wire_put_tag(&state->out, field->number, sbit__onnx_wire_of_element(field));
    }
}

/* Fields of a message with numbers from `first` to `last`. */
static void sbit__write_fields(sbit__write_state *state, int kind, const void *message,
                               uint32_t first, uint32_t last)
{
    const sbit__onnx_schema *schema = sbit__onnx_schema_at(kind);
    for (size_t i = schema->field_count; i-- > 0;) {
        const sbit__onnx_field *field = &schema->fields[i];
        if (field->number < first || field->number > last) {
            continue;
        }
        if (field->repeated) {
            sbit__write_repeated(state, field, message);
        } else {
            sbit__write_singular(state, field, message);
        }
    }
}

static void sbit__write_entry(sbit_onnx_string_entry *entry, const char *key, const char *value)
{
    memset(entry, 0, sizeof(*entry));
    SBIT_ONNX_SET(entry, SBIT_ONNX_STRING_ENTRY_KEY, key, sbit__str(key));
    SBIT_ONNX_SET(entry, SBIT_ONNX_STRING_ENTRY_VALUE, value, sbit__str(value));
}

/* A tensor whose bytes move out of the message or into it: all data fields give way. */
static void sbit__write_placed(sbit__write_state *state, const sbit__onnx_place *place)
{
    sbit_onnx_string_entry entries[3];
    char offset[24];
    char length[24];
    sbit_onnx_tensor tensor = *place->tensor;
    tensor.msg.has &= ~(1u << SBIT_ONNX_TENSOR_RAW_DATA | 1u << SBIT_ONNX_TENSOR_DATA_LOCATION);
    tensor.float_data_count = 0;
    tensor.int32_data_count = 0;
    tensor.int64_data_count = 0;
    tensor.double_data_count = 0;
    tensor.uint64_data_count = 0;
    tensor.external_data = NULL;
    tensor.external_data_count = 0;
    if (place->to_file) {
        snprintf(offset, sizeof(offset), "%llu", (unsigned long long)place->offset);
        snprintf(length, sizeof(length), "%llu", (unsigned long long)place->bytes);
        sbit__write_entry(&entries[0], "location", state->plan->location);
        sbit__write_entry(&entries[1], "offset", offset);
        sbit__write_entry(&entries[2], "length", length);
        tensor.external_data = entries;
        tensor.external_data_count = 3;
        SBIT_ONNX_SET(&tensor, SBIT_ONNX_TENSOR_DATA_LOCATION, data_location,
                      (int32_t)SBIT__ONNX_EXTERNAL);
    }
    sbit__write_fields(state, SBIT_ONNX_TENSOR, &tensor, SBIT_ONNX_TENSOR_RAW_DATA, UINT32_MAX);
    if (!place->to_file) {
        sbit__write_refer(state, NULL, place->bytes, place);
        sbit__wire_put_varint(&state->out, place->bytes);
        sbit__wire_put_tag(&state->out, SBIT_ONNX_TENSOR_RAW_DATA, SBIT__WIRE_LENGTH);
    }
    sbit__write_fields(state, SBIT_ONNX_TENSOR, &tensor, 0, SBIT_ONNX_TENSOR_RAW_DATA - 1);
}

static void sbit__write_message(sbit__write_state *state, int kind, const void *message)
{
    const sbit_str unknown = ((const sbit_onnx_msg *)message)->unknown;
    sbit__wire_put_bytes(&state->out, unknown.data, unknown.size);
    if (kind == SBIT_ONNX_TENSOR && state->places_left != 0 &&
        state->plan->places[state->places_left - 1].tensor == message) {
        state->places_left--;
        sbit__write_placed(state, &state->plan->places[state->places_left]);
    } else {
        sbit__write_fields(state, kind, message, 0, UINT32_MAX);
    }
}

/* ---- to memory ---- */

SPARSEBIT_API uint64_t sbit_onnx_measure(sbit_onnx_kind kind, const void *message)
{
    sbit__write_state state;
    memset(&state, 0, sizeof(state));
    sbit__write_message(&state, (int)kind, message);
    return state.out.total;
}

SPARSEBIT_API sbit_status sbit_onnx_write(sbit_onnx_kind kind, const void *message, void *buffer,
                                          size_t capacity, size_t *written, sbit_error *error)
{
    const uint64_t total = sbit_onnx_measure(kind, message);
    sbit__write_state state;
    if (total > capacity) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, NULL,
                          "the message needs %llu bytes, the buffer has %llu",
                          (unsigned long long)total, (unsigned long long)capacity);
    }
    memset(&state, 0, sizeof(state));
    if (total != 0) {
        state.out.begin = (unsigned char *)buffer;
        state.out.p = state.out.begin + (size_t)total;
        sbit__write_message(&state, (int)kind, message);
    }
    *written = (size_t)total;
    return SBIT_OK;
}

/* ---- to files ---- */

typedef struct sbit__write_save {
    sbit_onnx_doc *doc;
    const char *path;
    sbit__arena scratch; /* all memory of the save but the plan's */
    sbit__onnx_plan plan;
    sbit__writer model, data;
    unsigned char *buffer;
    size_t buffer_bytes;
    sbit__write_ref *refs;
    size_t ref_count;
} sbit__write_save;

static sbit_status sbit__write_options(sbit__write_save *save, const sbit_onnx_write_desc *desc,
                                       sbit_error *error)
{
    const char *base = save->path;
    for (const char *p = save->path; *p != '\0'; p++) {
        base = *p == '/' || *p == '\\' ? p + 1 : base;
    }
    const char *name = desc != NULL ? desc->external_name : NULL;
    if (name == NULL) {
        name = sbit__arena_printf(&save->scratch, "%s.data", base);
    } else if (strpbrk(name, "/\\") != NULL || !sbit__onnx_location_is_safe(name, strlen(name)) ||
               strcmp(name, base) == 0) {
        return sbit__fail(error, SBIT_ERR_INVALID_ARGUMENT, name,
                          "'%s' cannot name the external file: it must be a plain file name other "
                          "than the model's",
                          name);
    }
    if (name == NULL) {
        return sbit__fail_oom(error, strlen(base));
    }
    save->plan.location = name;
    save->plan.above_bytes = desc != NULL ? desc->external_above_bytes : 0;
    save->plan.align =
        desc != NULL && desc->external_align != 0 ? desc->external_align : SBIT__WRITE_ALIGN;
    return SBIT_OK;
}

/* Measures, allocates once, writes. */
static sbit_status sbit__write_skeleton(sbit__write_save *save, sbit_error *error)
{
    sbit__write_state state;
    const sbit_onnx_doc *doc = save->doc;
    memset(&state, 0, sizeof(state));
    state.plan = &save->plan;
    state.places_left = save->plan.count;
    sbit__write_message(&state, (int)doc->kind, doc->root);
    if (state.out.total > SBIT__WRITE_MESSAGE_BYTES) {
        return sbit__fail(error, SBIT_ERR_LIMIT, NULL,
                          "the message has %llu bytes, above protobuf's 2 GB; move weights to an "
                          "external file (external_above_bytes)",
                          (unsigned long long)state.out.total);
    }
    save->buffer_bytes = (size_t)(state.out.total - state.ref_bytes);
    save->buffer = (unsigned char *)sbit__arena_alloc(&save->scratch, save->buffer_bytes);
    save->refs = (sbit__write_ref *)sbit__arena_array(&save->scratch, state.ref_count,
                                                      sizeof(sbit__write_ref));
    if (save->buffer == NULL || save->refs == NULL) {
        return sbit__fail_oom(error, save->buffer_bytes);
    }
    memset(&state, 0, sizeof(state));
    state.plan = &save->plan;
    state.places_left = save->plan.count;
    state.refs = save->refs;
    state.out.begin = save->buffer;
    state.out.p = save->buffer + save->buffer_bytes;
    sbit__write_message(&state, (int)doc->kind, doc->root);
    save->ref_count = state.ref_count;
    return SBIT_OK;
}

static sbit_status sbit__write_put_ref(sbit__write_save *save, const sbit__write_ref *ref,
                                       sbit_error *error)
{
    if (ref->place == NULL) {
        return sbit__writer_put(&save->model, ref->data, ref->size, error);
    }
    sbit__file file;
    SBIT__TRY(sbit__onnx_external_open(save->doc, ref->place->tensor, &file, error));
    const sbit_status status = sbit__writer_put(&save->model, file.data, file.size, error);
    sbit__file_close(&file);
    return status;
}

/* The references were met from the end: the last one comes first in the file. */
static sbit_status sbit__write_model(sbit__write_save *save, sbit_error *error)
{
    size_t done = 0;
    for (size_t i = save->ref_count; i-- > 0;) {
        const size_t until = save->buffer_bytes - save->refs[i].tail;
        SBIT__TRY(sbit__writer_put(&save->model, save->buffer + done, until - done, error));
        SBIT__TRY(sbit__write_put_ref(save, &save->refs[i], error));
        done = until;
    }
    return sbit__writer_put(&save->model, save->buffer + done, save->buffer_bytes - done, error);
}

static sbit_status sbit__write_open_data(sbit__write_save *save, sbit_error *error)
{
    const char *folder = sbit__onnx_folder_of(&save->scratch, save->path);
    const char *path =
        folder != NULL ? sbit__arena_printf(&save->scratch, "%s/%s", folder, save->plan.location)
                       : NULL;
    if (path == NULL) {
        return sbit__fail_oom(error, strlen(save->path));
    }
    return sbit__writer_open(&save->plan.allocator, path, &save->data, error);
}

/* Both files are complete before the first of them takes its place. */
static sbit_status sbit__write_body(sbit__write_save *save, const sbit_onnx_write_desc *desc,
                                    sbit_error *error)
{
    SBIT__TRY(sbit__write_options(save, desc, error));
    SBIT__TRY(sbit__onnx_plan_build(&save->plan, save->doc, error));
    SBIT__TRY(sbit__write_skeleton(save, error));
    SBIT__TRY(sbit__writer_open(&save->plan.allocator, save->path, &save->model, error));
    SBIT__TRY(sbit__write_model(save, error));
    if (save->plan.file_bytes != 0) {
        SBIT__TRY(sbit__write_open_data(save, error));
        SBIT__TRY(sbit__onnx_plan_write(&save->plan, save->doc, &save->data, error));
        SBIT__TRY(sbit__writer_commit(&save->data, error));
    }
    return sbit__writer_commit(&save->model, error);
}

SPARSEBIT_API sbit_status sbit_onnx_save(sbit_onnx_doc *doc, const char *path,
                                         const sbit_onnx_write_desc *desc, sbit_error *error)
{
    const sbit_allocator *allocator = &doc->arena.allocator;
    sbit__write_save save;
    memset(&save, 0, sizeof(save));
    save.doc = doc;
    save.path = path;
    save.plan.allocator = *allocator;
    sbit__arena_init(&save.scratch, allocator);
    const sbit_status status = sbit__write_body(&save, desc, error);
    sbit__writer_abort(&save.data); /* no effect on a writer that was committed or never opened */
    sbit__writer_abort(&save.model);
    sbit__free(allocator, save.plan.places, save.plan.capacity * sizeof(sbit__onnx_place));
    sbit__arena_deinit(&save.scratch);
    return status;
}
#undef SBIT__WRITE_REF_BYTES
#undef SBIT__WRITE_MESSAGE_BYTES
#undef SBIT__WRITE_ALIGN
/* ---- end src/onnx/write.c ---- */

/* ---- begin src/onnx/check.c ---- */
/* check.c: the rules of the format that need no operator knowledge. >>check
 *
 * Called by: users, import. Calls: tensor, external, hash maps.
 * Rules (IR.md and onnx.proto's comments):
 *     model       ir_version >= 1, a graph, from IR 3 on opset imports, each domain once
 *     graph       names of inputs, initializers and node outputs are defined once in the graph (an
 *                 initializer may give an input its default); an input of a node or a graph output
 *                 is defined before, in this graph or an outer one; "" is an absent optional input
 *     node        op_type; its domain is imported; attribute names are unique
 *     attribute   a name and either ref_attr_name or one value, of the kind that `type` says
 *     function    name, unique with domain and overload; its body sees its own inputs only
 *     tensor      the data field holds what dims and type need; external locations are safe
 * Does not: look at node names (empty and repeated ones are common and harmless), at operators,
 * types or shapes, nor open external files. ONNX forbids shadowing of outer names in subgraphs,
 * exporters do it: the innermost definition counts.
 */

/* The names that are visible; a chain from the innermost graph outwards. */
typedef struct sbit__check_scope {
    const struct sbit__check_scope *up;
    sbit__map names; /* value: sbit__check_origin */
} sbit__check_scope;

enum {
    SBIT__CHECK_INPUT = 0,
    SBIT__CHECK_INITIALIZER = 1,
    SBIT__CHECK_OUTPUT = 2
};

typedef struct sbit__check_state {
    const sbit_allocator *allocator;
    const sbit_onnx_opset_id *opsets; /* of the model, or of the function that is checked */
    size_t opset_count;
    bool needs_opsets; /* IR version 3 and later */
    sbit_error *error;
} sbit__check_state;

static sbit_status sbit__check_graph(sbit__check_state *state, const sbit_onnx_graph *graph,
                                     const sbit__check_scope *up);

static const char *sbit__check_text(sbit_str text)
{
    return text.data != NULL ? text.data : "";
}

/* ---- names ---- */

static const char *sbit__check_origin_text(uint32_t origin)
{
    return origin == SBIT__CHECK_INPUT         ? "an input"
           : origin == SBIT__CHECK_INITIALIZER ? "an initializer"
                                               : "the output of a node";
}

static sbit_status sbit__check_name(const sbit__check_state *state, sbit_str name)
{
    if (name.size != 0 && memchr(name.data, '\0', name.size) != NULL) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, name.data,
                          "the name '%s' contains a NUL byte", name.data);
    }
    return SBIT_OK;
}

static sbit_status sbit__check_define(const sbit__check_state *state, sbit__check_scope *scope,
                                      sbit_str name, uint32_t origin)
{
    uint32_t old = 0;
    SBIT__TRY(sbit__check_name(state, name));
    if (name.size == 0) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, "", "%s has no name",
                          sbit__check_origin_text(origin));
    }
    if (sbit__map_find(&scope->names, name.data, &old) &&
        !(origin == SBIT__CHECK_INITIALIZER && old == SBIT__CHECK_INPUT)) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, name.data,
                          "'%s' is defined twice: as %s and as %s", name.data,
                          sbit__check_origin_text(old), sbit__check_origin_text(origin));
    }
    return sbit__map_set(&scope->names, name.data, origin, state->error);
}

static bool sbit__check_is_defined(const sbit__check_scope *scope, const char *name)
{
    for (; scope != NULL; scope = scope->up) {
        if (sbit__map_find(&scope->names, name, NULL)) {
            return true;
        }
    }
    return false;
}

/* "" and "ai.onnx" are two spellings of the default domain. */
static const char *sbit__check_domain(sbit_str domain)
{
    const char *text = sbit__check_text(domain);
    return strcmp(text, "ai.onnx") == 0 ? "" : text;
}

/* Adds a name to a set; NULL stands for "there was no memory to make it". */
static sbit_status sbit__check_once(const sbit__check_state *state, sbit__map *set,
                                    const char *name, const char *what)
{
    if (name == NULL) {
        return sbit__fail_oom(state->error, 0);
    }
    if (sbit__map_find(set, name, NULL)) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, name, "%s '%s' is given twice",
                          what, name);
    }
    return sbit__map_set(set, name, 0, state->error);
}

static sbit_status sbit__check_opsets(const sbit__check_state *state)
{
    sbit__map seen;
    sbit_status status = SBIT_OK;
    sbit__map_init(&seen, state->allocator);
    for (size_t i = 0; i < state->opset_count && status == SBIT_OK; i++) {
        status = sbit__check_once(state, &seen, sbit__check_domain(state->opsets[i].domain),
                                  "the opset import of domain");
    }
    sbit__map_deinit(&seen);
    return status;
}

/* ---- tensors ---- */

static sbit_status sbit__check_tensor(const sbit__check_state *state,
                                      const sbit_onnx_tensor *tensor)
{
    size_t bytes = 0;
    int64_t count = 0;
    if (tensor->data_type != SBIT_STRING) {
        return sbit__onnx_tensor_bytes(tensor, &bytes, state->error);
    }
    SBIT__TRY(sbit_onnx_tensor_count(tensor, &count, state->error));
    if ((uint64_t)count != tensor->string_data_count) {
        const char *label = sbit__onnx_tensor_label(tensor);
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, label,
                          "tensor '%s': string_data has %llu elements, dims need %lld", label,
                          (unsigned long long)tensor->string_data_count, (long long)count);
    }
    return SBIT_OK;
}

static sbit_status sbit__check_sparse(const sbit__check_state *state,
                                      const sbit_onnx_sparse_tensor *sparse)
{
    int64_t dense = 0;
    if (sparse->values == NULL) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, "",
                          "a sparse tensor has no values");
    }
    const char *label = sbit__onnx_tensor_label(sparse->values);
    SBIT__TRY(sbit__check_tensor(state, sparse->values));
    if (!sbit__dims_count(sparse->dims, sparse->dims_count, &dense) ||
        sparse->values->dims_count != 1 || sparse->values->dims[0] > dense) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, label,
                          "sparse tensor '%s': its values are not a list that fits its dims",
                          label);
    }
    const int64_t count = sparse->values->dims[0];
    const sbit_onnx_tensor *indices = sparse->indices;
    if (indices == NULL) {
        return count == 0 ? SBIT_OK
                          : sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, label,
                                       "sparse tensor '%s' has no indices", label);
    }
    SBIT__TRY(sbit__check_tensor(state, indices));
    const bool linear = indices->dims_count == 1 && indices->dims[0] == count;
    const bool coordinates = indices->dims_count == 2 && indices->dims[0] == count &&
                             (uint64_t)indices->dims[1] == sparse->dims_count;
    if (indices->data_type != SBIT_I64 || (!linear && !coordinates)) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, label,
                          "sparse tensor '%s': indices must be int64 of shape [%lld] or "
                          "[%lld,%llu]",
                          label, (long long)count, (long long)count,
                          (unsigned long long)sparse->dims_count);
    }
    return SBIT_OK;
}

/* ---- attributes ---- */

static sbit_status sbit__check_attribute_fail(const sbit__check_state *state,
                                              const sbit_onnx_attribute *attribute,
                                              const char *problem)
{
    return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, sbit__check_text(attribute->name),
                      "attribute '%s' %s", sbit__check_text(attribute->name), problem);
}

/* Bit t: the field for attribute type t is filled. */
static uint32_t sbit__check_attribute_values(const sbit_onnx_attribute *a)
{
    uint32_t found = 0;
    found |= SBIT_ONNX_HAS(a, SBIT_ONNX_ATTRIBUTE_F) << SBIT_ONNX_ATTR_FLOAT;
    found |= SBIT_ONNX_HAS(a, SBIT_ONNX_ATTRIBUTE_I) << SBIT_ONNX_ATTR_INT;
    found |= SBIT_ONNX_HAS(a, SBIT_ONNX_ATTRIBUTE_S) << SBIT_ONNX_ATTR_STRING;
    found |= (a->t != NULL ? 1u : 0u) << SBIT_ONNX_ATTR_TENSOR;
    found |= (a->g != NULL ? 1u : 0u) << SBIT_ONNX_ATTR_GRAPH;
    found |= (a->floats_count != 0 ? 1u : 0u) << SBIT_ONNX_ATTR_FLOATS;
    found |= (a->ints_count != 0 ? 1u : 0u) << SBIT_ONNX_ATTR_INTS;
    found |= (a->strings_count != 0 ? 1u : 0u) << SBIT_ONNX_ATTR_STRINGS;
    found |= (a->tensors_count != 0 ? 1u : 0u) << SBIT_ONNX_ATTR_TENSORS;
    found |= (a->graphs_count != 0 ? 1u : 0u) << SBIT_ONNX_ATTR_GRAPHS;
    found |= (a->sparse_tensor != NULL ? 1u : 0u) << SBIT_ONNX_ATTR_SPARSE_TENSOR;
    found |= (a->sparse_tensors_count != 0 ? 1u : 0u) << SBIT_ONNX_ATTR_SPARSE_TENSORS;
    found |= (a->tp != NULL ? 1u : 0u) << SBIT_ONNX_ATTR_TYPE_PROTO;
    found |= (a->type_protos_count != 0 ? 1u : 0u) << SBIT_ONNX_ATTR_TYPE_PROTOS;
    return found;
}

/* Types whose empty value looks like no value: lists, and scalars that a proto3-style writer left
 * out because they are zero. */
static bool sbit__check_may_be_empty(int32_t type)
{
    const uint32_t must_be_filled = 1u << SBIT_ONNX_ATTR_TENSOR | 1u << SBIT_ONNX_ATTR_GRAPH |
                                    1u << SBIT_ONNX_ATTR_SPARSE_TENSOR |
                                    1u << SBIT_ONNX_ATTR_TYPE_PROTO;
    return (must_be_filled >> type & 1u) == 0;
}

static sbit_status sbit__check_attribute(sbit__check_state *state, const sbit_onnx_attribute *a,
                                         const sbit__check_scope *scope)
{
    const uint32_t found = sbit__check_attribute_values(a);
    if (a->name.size == 0) {
        return sbit__check_attribute_fail(state, a, "has no name");
    }
    if (a->ref_attr_name.size != 0) {
        return found == 0 ? SBIT_OK
                          : sbit__check_attribute_fail(
                                state, a, "has both a value and a reference (ref_attr_name)");
    }
    if ((found & (found - 1)) != 0) {
        return sbit__check_attribute_fail(state, a, "has more than one value");
    }
    if (a->type < 0 || a->type > SBIT_ONNX_ATTR_TYPE_PROTOS) {
        return sbit__check_attribute_fail(state, a, "is of a type that is not known");
    }
    if (a->type != SBIT_ONNX_ATTR_UNDEFINED && /* IR version 1 had no `type` */
        found != 1u << a->type && !(found == 0 && sbit__check_may_be_empty(a->type))) {
        return sbit__check_attribute_fail(state, a, "has no value of the type it declares");
    }
    if (a->t != NULL) {
        SBIT__TRY(sbit__check_tensor(state, a->t));
    }
    for (size_t i = 0; i < a->tensors_count; i++) {
        SBIT__TRY(sbit__check_tensor(state, &a->tensors[i]));
    }
    if (a->sparse_tensor != NULL) {
        SBIT__TRY(sbit__check_sparse(state, a->sparse_tensor));
    }
    for (size_t i = 0; i < a->sparse_tensors_count; i++) {
        SBIT__TRY(sbit__check_sparse(state, &a->sparse_tensors[i]));
    }
    if (a->g != NULL) {
        SBIT__TRY(sbit__check_graph(state, a->g, scope));
    }
    for (size_t i = 0; i < a->graphs_count; i++) {
        SBIT__TRY(sbit__check_graph(state, &a->graphs[i], scope));
    }
    return SBIT_OK;
}

/* ---- nodes ---- */

static sbit_status sbit__check_node_head(const sbit__check_state *state, const sbit_onnx_node *node)
{
    bool imported = !state->needs_opsets && state->opset_count == 0;
    if (node->op_type.size == 0) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, "", "it has no op_type");
    }
    for (size_t i = 0; i < state->opset_count && !imported; i++) {
        imported = strcmp(sbit__check_domain(state->opsets[i].domain),
                          sbit__check_domain(node->domain)) == 0;
    }
    if (!imported) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, "",
                          "its domain '%s' is not among the opset imports",
                          sbit__check_text(node->domain));
    }
    return SBIT_OK;
}

static sbit_status sbit__check_attribute_names(const sbit__check_state *state,
                                               const sbit_onnx_node *node)
{
    sbit__map seen;
    sbit_status status = SBIT_OK;
    if (node->attribute_count < 2) {
        return SBIT_OK;
    }
    sbit__map_init(&seen, state->allocator);
    for (size_t i = 0; i < node->attribute_count && status == SBIT_OK; i++) {
        status =
            sbit__check_once(state, &seen, sbit__check_text(node->attribute[i].name), "attribute");
    }
    sbit__map_deinit(&seen);
    return status;
}

static sbit_status sbit__check_node_body(sbit__check_state *state, const sbit_onnx_node *node,
                                         sbit__check_scope *scope)
{
    SBIT__TRY(sbit__check_node_head(state, node));
    SBIT__TRY(sbit__check_attribute_names(state, node));
    for (size_t i = 0; i < node->input_count; i++) {
        const sbit_str name = node->input[i];
        SBIT__TRY(sbit__check_name(state, name));
        if (name.size != 0 && !sbit__check_is_defined(scope, name.data)) {
            return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, name.data,
                              "its input '%s' is not defined before it is used", name.data);
        }
    }
    for (size_t i = 0; i < node->attribute_count; i++) {
        SBIT__TRY(sbit__check_attribute(state, &node->attribute[i], scope));
    }
    for (size_t i = 0; i < node->output_count; i++) {
        if (node->output[i].size != 0) {
            SBIT__TRY(sbit__check_define(state, scope, node->output[i], SBIT__CHECK_OUTPUT));
        }
    }
    return SBIT_OK;
}

/* Puts the node's place in front of what went wrong inside it. */
static sbit_status sbit__check_node(sbit__check_state *state, const sbit_onnx_node *node,
                                    size_t idx, sbit__check_scope *scope)
{
    const sbit_status status = sbit__check_node_body(state, node, scope);
    if (status == SBIT_OK || status == SBIT_ERR_OUT_OF_MEMORY || state->error == NULL) {
        return status;
    }
    const char *name = sbit__check_text(node->name);
    const char *first_output = node->output_count != 0 ? sbit__check_text(node->output[0]) : "";
    return sbit__fail(state->error, status, name[0] != '\0' ? name : first_output,
                      "node %llu '%s' (%s): %s", (unsigned long long)idx, name,
                      sbit__check_text(node->op_type), state->error->message);
}

/* ---- graphs ---- */

static sbit_status sbit__check_graph_body(sbit__check_state *state, const sbit_onnx_graph *graph,
                                          sbit__check_scope *scope)
{
    for (size_t i = 0; i < graph->input_count; i++) {
        SBIT__TRY(sbit__check_define(state, scope, graph->input[i].name, SBIT__CHECK_INPUT));
    }
    for (size_t i = 0; i < graph->initializer_count; i++) {
        const sbit_onnx_tensor *tensor = &graph->initializer[i];
        SBIT__TRY(sbit__check_define(state, scope, tensor->name, SBIT__CHECK_INITIALIZER));
        SBIT__TRY(sbit__check_tensor(state, tensor));
    }
    for (size_t i = 0; i < graph->sparse_initializer_count; i++) {
        const sbit_onnx_sparse_tensor *sparse = &graph->sparse_initializer[i];
        SBIT__TRY(sbit__check_sparse(state, sparse));
        SBIT__TRY(sbit__check_define(state, scope, sparse->values->name, SBIT__CHECK_INITIALIZER));
    }
    for (size_t i = 0; i < graph->node_count; i++) {
        SBIT__TRY(sbit__check_node(state, &graph->node[i], i, scope));
    }
    for (size_t i = 0; i < graph->output_count; i++) {
        const sbit_str name = graph->output[i].name;
        SBIT__TRY(sbit__check_name(state, name));
        if (name.size == 0 || !sbit__check_is_defined(scope, name.data)) {
            return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, sbit__check_text(name),
                              "output '%s' of graph '%s' is not defined", sbit__check_text(name),
                              sbit__check_text(graph->name));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__check_graph(sbit__check_state *state, const sbit_onnx_graph *graph,
                                     const sbit__check_scope *up)
{
    sbit__check_scope scope;
    scope.up = up;
    sbit__map_init(&scope.names, state->allocator);
    const sbit_status status = sbit__check_graph_body(state, graph, &scope);
    sbit__map_deinit(&scope.names);
    return status;
}

/* ---- functions ---- */

static sbit_status sbit__check_function_body(sbit__check_state *state,
                                             const sbit_onnx_function *function,
                                             sbit__check_scope *scope)
{
    for (size_t i = 0; i < function->input_count; i++) {
        SBIT__TRY(sbit__check_define(state, scope, function->input[i], SBIT__CHECK_INPUT));
    }
    for (size_t i = 0; i < function->node_count; i++) {
        SBIT__TRY(sbit__check_node(state, &function->node[i], i, scope));
    }
    for (size_t i = 0; i < function->output_count; i++) {
        const sbit_str name = function->output[i];
        SBIT__TRY(sbit__check_name(state, name));
        if (name.size == 0 || !sbit__check_is_defined(scope, name.data)) {
            return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, sbit__check_text(name),
                              "its output '%s' is not defined", sbit__check_text(name));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__check_function(const sbit__check_state *model,
                                        const sbit_onnx_function *function)
{
    const char *name = sbit__check_text(function->name);
    sbit__check_state state = *model;
    sbit__check_scope scope;
    if (function->name.size == 0) {
        return sbit__fail(state.error, SBIT_ERR_INVALID_MODEL, "", "a function has no name");
    }
    state.opsets = function->opset_import;
    state.opset_count = function->opset_import_count;
    SBIT__TRY(sbit__check_opsets(&state));
    scope.up = NULL;
    sbit__map_init(&scope.names, state.allocator);
    const sbit_status status = sbit__check_function_body(&state, function, &scope);
    sbit__map_deinit(&scope.names);
    if (status == SBIT_OK || status == SBIT_ERR_OUT_OF_MEMORY || state.error == NULL) {
        return status;
    }
    return sbit__fail(state.error, status, state.error->where, "function '%s': %s", name,
                      state.error->message);
}

static sbit_status sbit__check_function_list(const sbit__check_state *state,
                                             const sbit_onnx_model *model, sbit__map *seen,
                                             sbit__arena *keys)
{
    for (size_t i = 0; i < model->functions_count; i++) {
        const sbit_onnx_function *function = &model->functions[i];
        const char *key = sbit__arena_printf(
            keys, "%s::%s%s%s", sbit__check_domain(function->domain),
            sbit__check_text(function->name), function->overload.size != 0 ? ":" : "",
            sbit__check_text(function->overload));
        SBIT__TRY(sbit__check_once(state, seen, key, "function"));
        SBIT__TRY(sbit__check_function(state, function));
    }
    return SBIT_OK;
}

static sbit_status sbit__check_functions(const sbit__check_state *state,
                                         const sbit_onnx_model *model)
{
    sbit__map seen;
    sbit__arena keys;
    sbit__map_init(&seen, state->allocator);
    sbit__arena_init(&keys, state->allocator);
    const sbit_status status = sbit__check_function_list(state, model, &seen, &keys);
    sbit__arena_deinit(&keys);
    sbit__map_deinit(&seen);
    return status;
}

/* ---- the model ---- */

/* Training graphs extend the inference graph: they see what it defines. */
static sbit_status sbit__check_model_graphs(sbit__check_state *state, const sbit_onnx_model *model,
                                            sbit__check_scope *scope)
{
    SBIT__TRY(sbit__check_graph_body(state, model->graph, scope));
    for (size_t i = 0; i < model->training_info_count; i++) {
        const sbit_onnx_training_info *info = &model->training_info[i];
        if (info->initialization != NULL) {
            SBIT__TRY(sbit__check_graph(state, info->initialization, scope));
        }
        if (info->algorithm != NULL) {
            SBIT__TRY(sbit__check_graph(state, info->algorithm, scope));
        }
    }
    return SBIT_OK;
}

static sbit_status sbit__check_model(sbit__check_state *state, const sbit_onnx_model *model)
{
    sbit__check_scope scope;
    if (SBIT_ONNX_HAS(model, SBIT_ONNX_MODEL_IR_VERSION) == 0 || model->ir_version < 1) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, "ir_version",
                          "the model has no valid ir_version");
    }
    if (model->graph == NULL) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, "graph", "the model has no graph");
    }
    state->opsets = model->opset_import;
    state->opset_count = model->opset_import_count;
    state->needs_opsets = model->ir_version >= 3;
    if (state->needs_opsets && state->opset_count == 0) {
        return sbit__fail(state->error, SBIT_ERR_INVALID_MODEL, "opset_import",
                          "the model imports no operator set");
    }
    SBIT__TRY(sbit__check_opsets(state));
    SBIT__TRY(sbit__check_functions(state, model));
    scope.up = NULL;
    sbit__map_init(&scope.names, state->allocator);
    const sbit_status status = sbit__check_model_graphs(state, model, &scope);
    sbit__map_deinit(&scope.names);
    return status;
}

static sbit_status sbit__check_visit(const sbit_onnx_tensor *tensor, const sbit__onnx_field *parent,
                                     void *user, sbit_error *error)
{
    (void)parent;
    (void)error;
    return sbit__check_tensor((const sbit__check_state *)user, tensor);
}

SPARSEBIT_API sbit_status sbit_onnx_check(sbit_onnx_doc *doc, sbit_error *error)
{
    sbit_error local; /* prefixes are put in front of a message, so there has to be one */
    sbit__check_state state;
    memset(&state, 0, sizeof(state));
    memset(&local, 0, sizeof(local));
    state.allocator = &doc->arena.allocator;
    state.error = error != NULL ? error : &local;
    if (doc->kind == SBIT_ONNX_MODEL) {
        return sbit__check_model(&state, (const sbit_onnx_model *)doc->root);
    }
    return sbit__onnx_visit_tensors(doc->kind, doc->root, sbit__check_visit, &state, error);
}
/* ---- end src/onnx/check.c ---- */

/* ---- begin src/onnx/print.c ---- */
/* print.c: messages as text, in the style of protobuf's text format. >>print
 *
 * Called by: users (debugging), tools. Calls: schema.
 *     name: value        numbers, "text" with C escapes
 *     name {             sub-messages, two spaces a level
 * Lists of numbers and texts stop after max_elements elements, bytes after max_elements bytes,
 * followed by "# N more"; 0 prints all. Without cuts and unknown fields the output can be read
 * back by protobuf. Allocates nothing.
 */

typedef struct sbit__print_state {
    void (*put)(const char *text, size_t size, void *user);
    void *user;
    uint32_t max_elements;
} sbit__print_state;

static void sbit__print_message(const sbit__print_state *state, int kind, const void *message,
                                unsigned depth);

static void sbit__print_text(const sbit__print_state *state, const char *text)
{
    state->put(text, strlen(text), state->user);
}

static void sbit__print_indent(const sbit__print_state *state, unsigned depth)
{
    for (unsigned i = 0; i < depth; i++) {
        state->put("  ", 2, state->user);
    }
}

static void sbit__print_more(const sbit__print_state *state, size_t count, unsigned depth)
{
    char line[64];
    snprintf(line, sizeof(line), "# %llu more\n", (unsigned long long)count);
    sbit__print_indent(state, depth);
    sbit__print_text(state, line);
}

/* Octal escapes for what is not printable ASCII: always three digits, so nothing can follow on. */
static void sbit__print_quoted(const sbit__print_state *state, const char *data, size_t size)
{
    char piece[256];
    size_t used = 0;
    state->put("\"", 1, state->user);
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)data[i];
        if (used + 8 > sizeof(piece)) {
            state->put(piece, used, state->user);
            used = 0;
        }
        if (c == '"' || c == '\\') {
            piece[used++] = '\\';
            piece[used++] = (char)c;
        } else if (c == '\n') {
            piece[used++] = '\\';
            piece[used++] = 'n';
        } else if (c < 0x20 || c >= 0x7f) {
            piece[used++] = '\\';
            piece[used++] = (char)('0' + (c >> 6));
            piece[used++] = (char)('0' + (c >> 3 & 7));
            piece[used++] = (char)('0' + (c & 7));
        } else {
            piece[used++] = (char)c;
        }
    }
    state->put(piece, used, state->user);
    state->put("\"", 1, state->user);
}

static void sbit__print_number(const sbit__print_state *state, const sbit__onnx_field *field,
                               const void *value)
{
    char text[48];
    int32_t i32 = 0;
    int64_t i64 = 0;
    uint64_t u64 = 0;
    float f32 = 0;
    double f64 = 0;
    switch (field->type) {
    case SBIT__ONNX_INT32:
        memcpy(&i32, value, sizeof(i32));
        snprintf(text, sizeof(text), "%d", (int)i32);
        break;
    case SBIT__ONNX_INT64:
        memcpy(&i64, value, sizeof(i64));
        snprintf(text, sizeof(text), "%lld", (long long)i64);
        break;
    case SBIT__ONNX_UINT64:
        memcpy(&u64, value, sizeof(u64));
        snprintf(text, sizeof(text), "%llu", (unsigned long long)u64);
        break;
    case SBIT__ONNX_FLOAT:
        memcpy(&f32, value, sizeof(f32));
        sbit__format_f64((double)f32, true, text);
        break;
    default:
        memcpy(&f64, value, sizeof(f64));
        sbit__format_f64(f64, false, text);
        break;
    }
    sbit__print_text(state, text);
}

/* One element, with the field's name in front. */
static void sbit__print_element(const sbit__print_state *state, const sbit__onnx_field *field,
                                const void *element, unsigned depth)
{
    sbit__print_indent(state, depth);
    sbit__print_text(state, field->name);
    if (field->type == SBIT__ONNX_MESSAGE) {
        sbit__print_text(state, " {\n");
        sbit__print_message(state, field->kind, element, depth + 1);
        sbit__print_indent(state, depth);
        sbit__print_text(state, "}\n");
        return;
    }
    sbit__print_text(state, ": ");
    if (field->type < SBIT__ONNX_TEXT) {
        sbit__print_number(state, field, element);
        sbit__print_text(state, "\n");
        return;
    }
    sbit_str str;
    memcpy(&str, element, sizeof(str));
    const bool cut = field->type == SBIT__ONNX_BYTES && state->max_elements != 0 &&
                     str.size > state->max_elements;
    const size_t shown = cut ? state->max_elements : str.size;
    sbit__print_quoted(state, str.data, shown);
    sbit__print_text(state, "\n");
    if (cut) {
        sbit__print_more(state, str.size - shown, depth);
    }
}

static void sbit__print_message(const sbit__print_state *state, int kind, const void *message,
                                unsigned depth)
{
    const sbit__onnx_schema *schema = sbit__onnx_schema_at(kind);
    const sbit_str unknown = ((const sbit_onnx_msg *)message)->unknown;
    for (size_t i = 0; i < schema->field_count; i++) {
        const sbit__onnx_field *field = &schema->fields[i];
        const char *elements = (const char *)sbit__onnx_member(message, field);
        size_t count = sbit__onnx_has(message, field) ? 1 : 0;
        if (field->repeated || field->type == SBIT__ONNX_MESSAGE) {
            elements = (const char *)sbit__onnx_pointer(message, field);
            count = field->repeated ? sbit__onnx_count(message, field)
                                    : (size_t)(elements != NULL ? 1 : 0);
        }
        const size_t each = sbit__onnx_element_bytes(field);
        const bool cut = field->type != SBIT__ONNX_MESSAGE && state->max_elements != 0 &&
                         count > state->max_elements;
        const size_t shown = cut ? state->max_elements : count;
        for (size_t j = 0; j < shown; j++) {
            sbit__print_element(state, field, elements + j * each, depth);
        }
        if (cut) {
            sbit__print_more(state, count - shown, depth);
        }
    }
    if (unknown.size != 0) {
        char line[64];
        snprintf(line, sizeof(line), "# %llu bytes of unknown fields\n",
                 (unsigned long long)unknown.size);
        sbit__print_indent(state, depth);
        sbit__print_text(state, line);
    }
}

SPARSEBIT_API void sbit_onnx_print(sbit_onnx_kind kind, const void *message, uint32_t max_elements,
                                   void (*put)(const char *text, size_t size, void *user),
                                   void *user)
{
    sbit__print_state state;
    state.put = put;
    state.user = user;
    state.max_elements = max_elements;
    sbit__print_message(&state, (int)kind, message, 0);
}
/* ---- end src/onnx/print.c ---- */

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && !defined(__OPTIMIZE_SIZE__)
#pragma GCC pop_options
#endif

#endif /* SPARSEBIT_ONNX_IMPLEMENTED */
#endif /* SPARSEBIT_ONNX_IMPLEMENTATION */

/*
MIT License

Copyright (c) sparsebit authors

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
*/
