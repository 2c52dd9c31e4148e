#!/bin/sh
# check_layers.sh - who may include whom, what the library may not call, and the comment at each file's head.
# The table below is the law; docs/ARCHITECTURE.md explains it.  Prints every breach as file:line: text.
# KILN_ROOT: another tree to look at.
cd "${KILN_ROOT:-$(dirname "$0")/..}" || exit 2
find include src cli python bench examples tests tools -name '*.[ch]' -o -name '*.def' -o -name '*.inc' | sort |
    xargs awk '
BEGIN {
    # A layer is a folder of src, or a folder of src/target, which is called target/NAME.
    # A layer may include itself, kiln/ (the public headers) and these: layers, or one header by its path.
    may["base"] = ""
    may["schema"] = may["expr"] = may["math"] = may["tensor"] = may["cache"] = "base"
    may["op"] = "base schema expr"
    may["work"] = "base expr/routine_id.h" # numbers of routines
    may["infer"] = "base schema expr op tensor work"
    may["ir"] = "base expr"
    may["run"] = "base expr math tensor ir work target/cpu/tuning.h" # drivers of host memory
    may["rules"] = "base schema expr op" # src/family/*rules.[ch]: what rows of a family may say, part of tools/index_ops
    may["family"] = "base schema expr op rules infer ir tensor work"
    may["graph"] = "base schema expr op infer"
    may["store"] = "base cache target/code.h"
    may["target"] = "base ir tensor" # what every target is: no emitter, compiler or loader
    may["target/cpu"] = "base expr math ir tensor run target"
    may["choosers"] = "base work infer family target/cpu/tuning.h target/target.def" # src/target/*/choose_*.c, which see rows
    may["api"] = "base schema expr math tensor cache store op infer ir work run family graph target" # no target by name
    may["cli"] = "bench/command/bench_list.h" # the benchmarks by name
    may["include"] = ""
    may["tools"] = "base schema op" # what checks and indexes rows
    may["python"] = "cli" # the text of calls, and the lines of KILN_LOG
    may["command"] = "cli" # bench/command: the benchmarks of `kiln bench`
    may["bench"] = "base target/cpu cache api" # what a compile costs, stage by stage, a lookup, a call without memos
    may["examples"] = "" # as programs outside the tree
    may["tests"] = "*"

    # In src/, these words are called nowhere but in the files on the right: each begins a path.
    split("printf fprintf puts fputs putchar perror exit _exit abort setenv putenv unsetenv signal sigaction", words, " ")
    for (i in words) only[words[i]] = "-"
    split("malloc calloc realloc free strdup strndup aligned_alloc posix_memalign", words, " ")
    for (i in words) only[words[i]] = "src/base/alloc.c"
    split("posix_spawn posix_spawnp execve fork vfork system popen dlopen", words, " ")
    for (i in words) only[words[i]] = "src/target/"
    only["dlopen"] = "src/target/ src/store/ src/run/torch_threads.c" # which asks for what is loaded already
}

function allowed(file, places,    n, i, place) {
    n = split(places, place, " ")
    for (i = 1; i <= n; i++)
        if (index(file, place[i]) == 1) return 1
    return 0
}

# The layer of a file in src/, which other layers include by this path.
function layer_of(path,    part, n) {
    n = split(path, part, "/")
    if (path ~ /^family\/[a-z_]*rules\.[ch]$/) return "rules"
    if (path == "target/choosers.c" || path ~ /^target\/[a-z0-9_]*\/choose[a-z_]*\.[ch]$/) return "choosers"
    return part[1] == "target" && n > 2 ? "target/" part[2] : part[1]
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
    layer = part[1] == "src" ? layer_of(substr(FILENAME, 5)) : FILENAME ~ /^bench\/command\// ? part[2] : part[1]
    if (!(layer in may)) breach("no layer \047" layer "\047 in tools/check_layers.sh")
    if ($0 ~ /^\/\*/) inhead = 1
}

inhead { head++; if (/\*\//) inhead = 0 }

/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, quoted, "\"")
    to = index(quoted[2], "/") ? layer_of(quoted[2]) : layer
    if (to != layer && to != "kiln" && may[layer] != "*" && index(" " may[layer] " ", " " to " ") == 0 &&
        index(" " may[layer] " ", " " quoted[2] " ") == 0)
        breach(layer " may not include " quoted[2])
}

# Only src/family may name a family.  The other folders find facts about a family in the tables of its rules and functions.
part[1] == "src" && part[2] != "family" && /KILN_FAMILY_/ {
    rest = $0
    gsub(/KILN_FAMILY_(COUNT|##)/, "", rest)
    if (rest ~ /KILN_FAMILY_/) breach("only src/family knows a family by name")
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
        if (word in only && before !~ /[.>]/ && !allowed(FILENAME, only[word]))
            breach("the library does not call " word "()" (only[word] == "-" ? "" : " outside " only[word]))
    }
}

END { finish(); exit bad }
'
