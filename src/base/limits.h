/* Limits of the files that are read whole, in bytes. Each is checked before the content is parsed; docs/FILES.md lists them. Tensors are limited by
 * the size of their file and by memory; texts and token caches are read in chunks. The limits of the tool are in tool/tool.h. */
#ifndef RCVI_LIMITS_H
#define RCVI_LIMITS_H

enum {
    RCVI_LIMIT_CELL = 1 << 20,            /* bytes of a .cell file, or of a cell's text in a model */
    RCVI_LIMIT_SETTINGS = 1 << 20,        /* of a file of settings */
    RCVI_LIMIT_WISDOM = 16 << 20,         /* of a file of wisdom */
    RCVI_LIMIT_WISDOM_LINE = 4096,        /* of a line of it */
    RCVI_LIMIT_KERNEL = 64 << 20,         /* of a compiled kernel in the cache */
    RCVI_LIMIT_VOCABULARY = 256 << 20,    /* of a list of words or characters, or of a tokenizer.json */
    RCVI_LIMIT_CLASSES = 64 << 20,        /* of the class names in a token cache */
    RCVI_LIMIT_EXAMPLE = 256 << 20,       /* of a line of examples */
    RCVI_LIMIT_NAMES = 50000000,          /* of a vocabulary, and of classes, in the header of a model */
    RCVI_LIMIT_TENSOR_HEADER = 100000000, /* of the header of a tensor file; defined by the format */
};

#endif
