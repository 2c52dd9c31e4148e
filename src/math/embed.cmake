# embed.cmake - texts that become part of the library: the math fragments, the operator rows with their index, the
# schema list, the build stamp.  Appends the generated C files to KILN_GEN_SOURCES.  A new .inc or .ops file is found by the glob.
file(GLOB KILN_MATH_INC CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/math/*.inc)
file(GLOB KILN_OPS_FILES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ops/*.ops)
set(KILN_SCHEMA_LIST ${PROJECT_SOURCE_DIR}/ops/aten-schemas-2.13.txt)
set(KILN_GEN_DIR ${PROJECT_BINARY_DIR}/gen)
file(MAKE_DIRECTORY ${KILN_GEN_DIR})

# SYMBOL=PATH for each file, symbol = prefix + stem.
function(kiln_embed_args out prefix)
    set(args)
    foreach(path ${ARGN})
        get_filename_component(stem ${path} NAME_WE)
        string(MAKE_C_IDENTIFIER ${prefix}${stem} symbol)
        list(APPEND args ${symbol}=${path})
    endforeach()
    set(${out} ${args} PARENT_SCOPE)
endfunction()

kiln_embed_args(KILN_MATH_ARGS kiln_text_math_ ${KILN_MATH_INC})
kiln_embed_args(KILN_OPS_ARGS kiln_text_ops_ ${KILN_OPS_FILES})

add_custom_command(OUTPUT ${KILN_GEN_DIR}/math_text.c
    COMMAND ${KILN_EMBED} ${KILN_GEN_DIR}/math_text.c -i kiln_text_math ${KILN_MATH_ARGS}
    DEPENDS ${KILN_EMBED} ${KILN_MATH_INC} VERBATIM)
add_custom_command(OUTPUT ${KILN_GEN_DIR}/ops_text.c
    COMMAND ${KILN_EMBED} ${KILN_GEN_DIR}/ops_text.c kiln_text_schemas=${KILN_SCHEMA_LIST}
        -i kiln_text_ops ${KILN_OPS_ARGS}
    DEPENDS ${KILN_EMBED} ${KILN_SCHEMA_LIST} ${KILN_OPS_FILES} VERBATIM)
add_custom_command(OUTPUT ${KILN_GEN_DIR}/ops_index.c
    COMMAND ${KILN_INDEX_OPS} ${KILN_GEN_DIR}/ops_index.c ${KILN_SCHEMA_LIST} ${KILN_OPS_FILES}
    COMMENT "Checking the rows in ops/"
    DEPENDS ${KILN_INDEX_OPS} ${KILN_SCHEMA_LIST} ${KILN_OPS_FILES} VERBATIM)
file(STRINGS ${PROJECT_SOURCE_DIR}/src/target/cpu/stamped.txt stamped REGEX "^[^#]")
list(TRANSFORM stamped PREPEND ${PROJECT_SOURCE_DIR}/)
file(GLOB stamped CONFIGURE_DEPENDS ${stamped}) # sorted by path
add_custom_command(OUTPUT ${KILN_GEN_DIR}/stamp.c
    COMMAND ${KILN_EMBED} ${KILN_GEN_DIR}/stamp.c -d kiln_emit_stamp ${stamped}
    DEPENDS ${KILN_EMBED} ${stamped} VERBATIM)
list(APPEND KILN_GEN_SOURCES ${KILN_GEN_DIR}/math_text.c ${KILN_GEN_DIR}/ops_text.c ${KILN_GEN_DIR}/ops_index.c
    ${KILN_GEN_DIR}/stamp.c)
