# Writes the C file OUTPUT that holds the file TEXT as the characters `NAME`, ending in NUL. Bytes are carried as numbers, so
# a text may hold anything.

file(READ ${TEXT} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REPEAT "0x..," 20 row)
string(REGEX REPLACE "(${row})" "\\1\n    " bytes "${bytes}")
cmake_path(GET TEXT FILENAME file)
file(WRITE ${OUTPUT} "/* Generated from ${file} by cmake/embed_text.cmake. */
extern const char ${NAME}[];
const char ${NAME}[] = {
    ${bytes}0};
")
