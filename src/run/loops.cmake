# loops.cmake - src/run/loops.c, once per ISA level and element size.  Appends to KILN_LOOP_OBJECTS.
# The levels are those loops_table.c lists.
set(KILN_LOOP_LEVELS GENERIC)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
    list(APPEND KILN_LOOP_LEVELS V2 V3 V4)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
    list(APPEND KILN_LOOP_LEVELS A64)
endif()
# Of each level what src/math asks for: its name there and the bytes of its vectors.
set(KILN_LOOP_FLAGS_GENERIC -DKILN_VB=16)
set(KILN_LOOP_FLAGS_V2 -march=x86-64-v2 -DKILN_ISA_X86_V2=1 -DKILN_VB=16)
set(KILN_LOOP_FLAGS_V3 -march=x86-64-v3 -DKILN_ISA_X86_V3=1 -DKILN_VB=32)
set(KILN_LOOP_FLAGS_V4 -march=x86-64-v4 -DKILN_ISA_X86_V4=1 -DKILN_VB=64)
set(KILN_LOOP_FLAGS_A64 -march=armv8-a -DKILN_LOOPS_A64=1 -DKILN_VB=16)

# -O2 in every build type: the loops are the same code everywhere.  Not so under sanitizers, which see as much without: most of
# such a build would go to optimising what they add.
set(KILN_LOOP_OPTIMIZE -O2)
if(KILN_SANITIZE)
    set(KILN_LOOP_OPTIMIZE -O0)
endif()

# Fuzzers are told which loops ran.
set(KILN_LOOP_COVERAGE)
if(KILN_FUZZ)
    set(KILN_LOOP_COVERAGE -fsanitize-coverage=func,inline-8bit-counters,pc-table)
endif()

foreach(level ${KILN_LOOP_LEVELS})
    foreach(size 1 2 4 8)
        set(unit kiln_loops_${level}_${size})
        add_library(${unit} OBJECT ${PROJECT_SOURCE_DIR}/src/run/loops.c)
        target_include_directories(${unit} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
        target_compile_definitions(${unit} PRIVATE KILN_LOOPS_ISA=${level} KILN_LOOPS_SIZE=${size})
        # -Wno-psabi: no vector crosses a function that is not inlined into this unit.  -g1: lines are all that is
        # worth knowing of code that macros made.
        target_compile_options(${unit} PRIVATE ${KILN_LOOP_OPTIMIZE} -g1 -ffp-contract=off -frounding-math -fwrapv -fno-math-errno -Wno-psabi
            ${KILN_LOOP_FLAGS_${level}} ${KILN_LOOP_COVERAGE})
        set_target_properties(${unit} PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
        list(APPEND KILN_LOOP_OBJECTS $<TARGET_OBJECTS:${unit}>)
    endforeach()
endforeach()
