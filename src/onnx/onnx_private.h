/* onnx_private.h: what the files of the codec share: wire primitives, the schema table, the
 * document and external data.
 *
 * Called by: src/onnx only. Calls: base.
 */
#ifndef SBIT_ONNX_PRIVATE_H
#define SBIT_ONNX_PRIVATE_H

#include "../base/base_private.h"
#include "onnx_api.h"

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
