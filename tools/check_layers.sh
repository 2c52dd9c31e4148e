#!/bin/sh
# check_layers.sh - who may include whom, what the library may not call, and the comment at each file's head.
# The table below is the law; docs/ARCHITECTURE.md explains it.  Prints every breach as file:line: text.
# KILN_ROOT: another tree to look at.
cd "${KILN_ROOT:-$(dirname "$0")/..}" || exit 2
find include src cli python bench examples tests tools -name '*.[ch]' -o -name '*.def' -o -name '*.inc' | sort |
    xargs awk '
BEGIN {
    # A layer may include itself, kiln/ (the public headers) and these.
    may["base"] = ""
    may["schema"] = may["expr"] = may["math"] = may["tensor"] = may["build"] = may["cache"] = "base"
    may["op"] = "base schema expr"
    may["infer"] = "base schema expr op tensor"
    may["ir"] = "base expr"
    may["run"] = "base expr math tensor ir infer"
    may["lower"] = "base schema expr op infer ir"
    may["family"] = "base schema expr op infer ir lower tensor"
    may["emit"] = "base expr math ir"
    may["graph"] = "base schema expr op infer"
    may["api"] = "base schema expr math tensor build cache op infer ir run lower family emit graph"
    may["cli"] = may["include"] = ""
    may["tools"] = "base schema op" # what checks and indexes rows
    may["python"] = "cli" # the text of calls
    may["bench"] = "base build cache api" # what a compile costs, stage by stage, a lookup, a call without memos
    may["examples"] = "" # as programs outside the tree
    may["tests"] = "*"

    # In src/, these words are called nowhere but in the files on the right.
    split("printf fprintf puts fputs putchar perror exit _exit abort setenv putenv unsetenv signal sigaction", words, " ")
    for (i in words) only[words[i]] = "-"
    split("malloc calloc realloc free strdup strndup aligned_alloc posix_memalign", words, " ")
    for (i in words) only[words[i]] = "src/base/alloc.c"
    split("posix_spawn posix_spawnp execve fork vfork system popen dlopen", words, " ")
    for (i in words) only[words[i]] = "src/build/"
}

function breach(text) { printf "%s:%d: %s\n", FILENAME, FNR, text; bad = 1 }

# Ends the look at the previous file.
function finish() {
    strict = file ~ /^(src|cli|python|bench|examples)\/.*\.c$/ # a header may show an example, a test need not say much
    least = strict ? 3 : 1; most = strict ? 15 : 30
    if (file ~ /\.[ch]$/ && (head < least || head > most)) {
        printf "%s:1: starts with a comment of %d lines, expected %d to %d\n", file, head, least, most; bad = 1
    }
}

FNR == 1 {
    finish()
    file = FILENAME; head = 0; inhead = 0; incomment = 0
    n = split(FILENAME, part, "/")
    layer = part[1] == "src" ? part[2] : part[1]
    if (!(layer in may)) breach("no layer \047" layer "\047 in tools/check_layers.sh")
    if ($0 ~ /^\/\*/) inhead = 1
}

inhead { head++; if (/\*\//) inhead = 0 }

/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, quoted, "\"")
    slash = index(quoted[2], "/")
    to = slash ? substr(quoted[2], 1, slash - 1) : layer
    if (to != layer && to != "kiln" && may[layer] != "*" && index(" " may[layer] " ", " " to " ") == 0)
        breach(layer " may not include " quoted[2])
}

# Calls, outside comments and string literals.
part[1] == "src" && FILENAME ~ /\.c$/ {
    line = $0
    gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
    gsub(/\/\*[^*]*\*+([^\/*][^*]*\*+)*\//, "", line)
    if (incomment) { if (!sub(/.*\*\//, "", line)) next; incomment = 0 }
    if (sub(/\/\*.*/, "", line)) incomment = 1
    while (match(line, /[A-Za-z_][A-Za-z0-9_]*[ ]?\(/)) {
        word = substr(line, RSTART, RLENGTH - 1)
        before = RSTART > 1 ? substr(line, RSTART - 1, 1) : ""
        line = substr(line, RSTART + RLENGTH)
        sub(/ $/, "", word)
        if (word in only && before !~ /[.>]/ && index(FILENAME, only[word]) != 1)
            breach("the library does not call " word "()" (only[word] == "-" ? "" : " outside " only[word]))
    }
}

END { finish(); exit bad }
'
