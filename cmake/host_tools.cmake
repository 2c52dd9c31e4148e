# host_tools.cmake - sets KILN_EMBED and KILN_INDEX_OPS to programs that run on the machine that builds.
# A native build has them as targets of its own.  A cross build makes them by another CMake with this machine's
# compiler (KILN_HOST_CC, cc if it is not set).
if(CMAKE_CROSSCOMPILING)
  include(ExternalProject)
  set(KILN_HOST_CC cc CACHE STRING "C compiler for programs that run while Kiln is cross-built")
  set(host_dir ${PROJECT_BINARY_DIR}/host-tools)
  ExternalProject_Add(kiln_host_tools SOURCE_DIR ${PROJECT_SOURCE_DIR}/tools BINARY_DIR ${host_dir} INSTALL_COMMAND ""
    CMAKE_ARGS -DCMAKE_C_COMPILER=${KILN_HOST_CC} -DCMAKE_BUILD_TYPE=Release BUILD_ALWAYS ON
    BUILD_BYPRODUCTS ${host_dir}/kiln_embed ${host_dir}/kiln_index_ops)
  set(KILN_EMBED ${host_dir}/kiln_embed)
  set(KILN_INDEX_OPS ${host_dir}/kiln_index_ops)
else()
  add_subdirectory(${PROJECT_SOURCE_DIR}/tools ${PROJECT_BINARY_DIR}/tools)
  set(KILN_EMBED kiln_embed)
  set(KILN_INDEX_OPS kiln_index_ops)
endif()
