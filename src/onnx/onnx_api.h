/* onnx_api.h: the ONNX codec: every message of onnx.proto (IR version 13) and onnx-data.proto as
 * plain structs, read and written without protobuf. >>onnx
 *
 * Called by: users of sparsebit_onnx.h, graph import and export, the tests. Calls: base.
 * Reading gives one document: one arena holds all structs, text and small arrays; `bytes` fields
 * (raw_data) are views into the file, which stays mapped. One destroy frees everything.
 * A document has many readers or one writer. Nothing here knows what an operator means.
 */
#ifndef SBIT_ONNX_API_H
#define SBIT_ONNX_API_H

#include "../base/base_api.h"

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif

#endif /* SBIT_ONNX_API_H */
