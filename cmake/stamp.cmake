# stamp.cmake - run by the build: writes OUT, a C file with one digest of everything that decides what code a kernel has:
# emitter, math, IR, kernel ABI and the compiler's flags.  A kernel that is kept carries it; another stamp, another kernel.
set(all)
foreach(path ${FILES})
    file(SHA256 ${path} digest)
    string(APPEND all ${digest})
endforeach()
string(SHA256 stamp "${all}")
file(WRITE ${OUT} "/* written by cmake/stamp.cmake */\n#include \"emit/emit.h\"\n\nconst char *kiln_emit_stamp(void) { return \"${stamp}\"; }\n")
