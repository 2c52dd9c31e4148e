# KILN_EXPORT_MAP: the shared library's linker version script, made from the functions that kiln.h and
# kiln_graph.h mark with KILN_API, so that the headers alone decide what is exported.
set(KILN_EXPORT_MAP ${CMAKE_CURRENT_BINARY_DIR}/kiln.map)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS include/kiln/kiln.h include/kiln/kiln_graph.h)
file(READ include/kiln/kiln.h header)
file(READ include/kiln/kiln_graph.h graph_header)
string(APPEND header "${graph_header}")
string(REPLACE ";" "," header "${header}") # a semicolon would split CMake's list of matches
string(REGEX MATCHALL "KILN_API[^(,]*[ *]kiln_[a-z0-9_]+\\(" declarations "${header}")
list(TRANSFORM declarations REPLACE ".*[ *](kiln_[a-z0-9_]+)\\($" "    \\1")
list(SORT declarations)
list(JOIN declarations ";\n" names)
file(CONFIGURE OUTPUT ${KILN_EXPORT_MAP} CONTENT "KILN_${PROJECT_VERSION_MAJOR} {\n  global:\n@names@;\n  local: *;\n};\n" @ONLY)
