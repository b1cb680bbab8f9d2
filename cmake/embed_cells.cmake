# Writes the C file OUTPUT that holds every cell text named in the file LIST (one path a line, sorted by name).
# Bytes are carried as numbers, so a text may hold anything.

file(STRINGS ${LIST} paths)
set(arrays "")
set(entries "")
set(total 0)
foreach(path IN LISTS paths)
    cmake_path(GET path STEM LAST_ONLY name)
    file(SIZE ${path} length)
    file(READ ${path} hex HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
    string(REPEAT "0x..," 20 row)
    string(REGEX REPLACE "(${row})" "\\1\n    " bytes "${bytes}")
    string(APPEND arrays "static const unsigned char text_${total}[] = {\n    ${bytes}0};\n\n")
    file(STRINGS ${path} first LIMIT_COUNT 1)
    string(REGEX REPLACE "^# *" "" summary "${first}")
    string(REGEX REPLACE "([\\\"])" "\\\\\\1" summary "${summary}")
    string(APPEND entries "    {\"${name}\", (const char *)text_${total}, ${length}, \"${summary}\"},\n")
    math(EXPR total "${total} + 1")
endforeach()

file(WRITE ${OUTPUT} "/* Generated from cells/ by cmake/embed_cells.cmake. */
#include \"cell/builtin.h\"

${arrays}const rcvi_builtin rcvi_builtins[] = {
${entries}    {NULL, NULL, 0, NULL},
};

const size_t rcvi_builtin_total = ${total};
")
