#!/usr/bin/env bash
# Fails when an internal name is defined in two files of src/.
#   scripts/check-names.sh [ROOT]
# Checked are names that begin with rcvi_ or RCVI_: types (typedef, struct, union, enum), enum constants, functions and variables with external
# linkage, functions of headers, and macros. Not counted:
#   - declarations, also `typedef struct rcvi_x rcvi_x;`, and include guards;
#   - macros that their own file undefines (parameters of a file that is included several times);
#   - static functions of a source file;
#   - second definitions in the same file (#if and #else);
#   - files none.c and *_none.c, which replace others in a build without a library;
#   - a struct that a header of src/device declares and each device (src/device/NAME/) defines once.
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2

find src -name '*.[ch]' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' | sort | xargs -r awk '
    function define(name, line) {
        if (name !~ /^(rcvi|RCVI)_/ || file ~ /(^|[\/_])none\.c$/ || ((name, file) in seen)) return
        seen[name, file] = 1
        names[++name_count] = name
        files[name_count] = file
        lines[name_count] = line
    }

    # The device whose folder holds a file, or "".
    function device_of(path,    part) {
        return split(path, part, "/") > 3 && part[2] == "device" ? part[3] : ""
    }

    function report(    i, name, device, key) {
        for (i = 1; i <= name_count; i++) {
            name = names[i]
            device = name in of_devices ? device_of(files[i]) : ""
            key = name SUBSEP device
            if (key in place) {
                print files[i] ":" lines[i] ": " name " is already defined at " place[key] "; rename one of the two"
                status = 1
            } else place[key] = files[i] ":" lines[i]
        }
    }

    # The code of a line: without comments; strings and character constants are empty.
    function strip(line,    out, i, two, quote) {
        out = ""
        for (i = 1; i <= length(line); i++) {
            two = substr(line, i, 2)
            if (in_comment) { if (two == "*/") { in_comment = 0; i++; out = out " " } }
            else if (two == "/*") { in_comment = 1; i++ }
            else if (two == "//") break
            else if (substr(two, 1, 1) == "\"" || substr(two, 1, 1) == "\047") {
                quote = substr(two, 1, 1)
                for (i++; i <= length(line) && substr(line, i, 1) != quote; i++) if (substr(line, i, 1) == "\\") i++
                out = out "\"\""
            } else out = out substr(two, 1, 1)
        }
        return out
    }

    function preprocess(line,    word) {
        sub(/^[ \t]*#[ \t]*/, "", line)
        split(line, word, /[^A-Za-z0-9_]+/)
        if (word[1] == "ifndef" && guard == "") guard = word[2]
        else if (word[1] == "define" && word[2] != guard) { macros[++macro_count] = word[2]; macro_line[macro_count] = FNR }
        else if (word[1] == "undef") undefined[word[2]] = 1
        if (word[1] != "" && guard == "") guard = "none" # a guard is the first directive
    }

    function end_statement() {
        is_static = is_extern = is_typedef = is_forward = 0
        candidate = called = typedef_name = ""
        parens = 0
        previous = ""
    }

    function end_typedef() {
        if (typedef_name != "" && !is_forward) define(typedef_name, FNR)
        if (is_forward && file ~ /^src\/device\/[^\/]*\.h$/) of_devices[typedef_name] = 1
        is_typedef = 0
    }

    function take(token) {
        # __attribute__((...)) is left out
        if (skipping) {
            if (token == "(") skip_depth++
            else if (token == ")" && --skip_depth == 0) skipping = 0
            return
        }
        if (token == "__attribute__") { skipping = 1; skip_depth = 0; return }

        # constants of an enum: the first word, and the first after each comma
        if (enum_depth && depth == enum_depth) {
            if (token == "(") enum_parens++
            else if (token == ")") enum_parens--
            else if (token == "," && !enum_parens) expect_constant = 1
            else if (expect_constant && token ~ /^[A-Za-z_]/) { define(token, FNR); expect_constant = 0 }
        }

        if (token == "{") {
            if (tag_kind != "" && tag_name != "") define(tag_name, FNR)
            if (tag_kind == "enum") { enum_depth = depth + 1; expect_constant = 1; enum_parens = 0 }
            if (tag_kind != "") is_forward = 0
            if (tag_kind == "" && depth == 0 && called != "" && !is_typedef && (!is_static || in_header)) define(called, FNR)
            if (!(depth == 0 && is_extern && previous == "\"\"")) { # not extern "C" {
                # in a braced list of a variable, or the body of a type, the statement goes on after the brace
                body[++depth] = tag_kind != "" || previous == "="
            } else end_statement()
            tag_kind = tag_name = ""
            previous = token
            return
        }
        if (token == "}") {
            if (depth == enum_depth) enum_depth = 0
            if (depth > 0 && !body[depth--] && depth == typedef_depth) end_statement()
            previous = token
            return
        }
        if (token == "struct" || token == "union" || token == "enum") { tag_kind = token; tag_name = "" }
        else if (tag_kind != "" && tag_name == "" && token ~ /^[A-Za-z_]/) {
            tag_name = token
            if (is_typedef && depth == typedef_depth) is_forward = 1
        } else if (tag_kind != "") tag_kind = tag_name = ""

        if (token == "typedef") { is_typedef = 1; typedef_depth = depth; typedef_name = ""; is_forward = 0; parens = 0; fixed = 0; previous = token; return }
        if (is_typedef && depth == typedef_depth) {
            if (token == "(") { if (parens++ == 0 && previous ~ /^rcvi_/) fixed = 1 }
            else if (token == ")") parens--
            else if (token == ";") { end_typedef(); end_statement(); typedef_depth = 0; return }
            else if (token ~ /^[A-Za-z_]/ && !fixed) {
                if (parens == 0 || previous == "*") typedef_name = token
                if (parens > 0 && previous == "*") fixed = 1
            }
            # a forward declaration is nothing but `typedef struct a a;`
            if (is_forward && (token == "(" || token == "*")) is_forward = 0
            previous = token
            return
        }
        if (depth == 0) {
            if (token == "static") is_static = 1
            else if (token == "extern") is_extern = 1
            else if (token == "(") { if (parens++ == 0 && previous ~ /^rcvi_/) called = previous }
            else if (token == ")") parens--
            else if (token == "=" && parens == 0 && !is_static) define(candidate, FNR)
            else if (token == ";") { end_statement(); return }
            else if (parens == 0 && previous != "[" && token ~ /^[A-Za-z_]/) candidate = token
        }
        previous = token
    }

    function begin_file() {
        file = FILENAME
        in_header = file ~ /\.(h|cuh)$/
        guard = ""
        in_comment = continued = depth = enum_depth = typedef_depth = skipping = 0
        tag_kind = tag_name = ""
        macro_count = 0
        split("", undefined)
        end_statement()
    }

    function end_file(    i) {
        for (i = 1; i <= macro_count; i++) if (!(macros[i] in undefined)) define(macros[i], macro_line[i])
    }

    FNR == 1 { if (file != "") end_file(); begin_file() }
    {
        code = strip($0)
        if (continued || code ~ /^[ \t]*#/) {
            if (!continued) preprocess(code)
            continued = code ~ /\\[ \t]*$/
            next
        }
        while (match(code, /[A-Za-z_][A-Za-z0-9_]*|""|[^ \tA-Za-z0-9_]/)) {
            token = substr(code, RSTART, RLENGTH)
            code = substr(code, RSTART + RLENGTH)
            take(token)
        }
    }
    END { if (file != "") end_file(); report(); exit status }' || exit 1
