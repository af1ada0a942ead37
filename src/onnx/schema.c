/* schema.c: the table of messages and fields, and what follows from it: copy, equality, visits.
 * >>schema
 *
 * Called by: read, write, external, print, users (copy, equal). Calls: base.
 * The table is onnx.proto (IR version 13) and onnx-data.proto, field by field: a row says where
 * the member lies in the struct of onnx_api.h and how it looks on the wire. Every operation on
 * messages is one loop over rows; a new field of ONNX is one member and one row.
 */
#include "onnx_private.h"

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
