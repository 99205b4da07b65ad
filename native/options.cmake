# The options of the build, with their defaults.

option(PYRDMA_PYTHON "Build the Python module pyrdma._core" ON)
option(PYRDMA_TESTS "Build native_tests; needs GoogleTest" OFF)
option(PYRDMA_WERROR "Turn warnings into errors" OFF)
option(PYRDMA_UNITY "Compile the files of a folder as one, in a third of the time; off shows a missing include" ON)
set(PYRDMA_VERBS AUTO CACHE STRING
  "Build the provider for real NICs: ON, which needs the headers of rdma-core; OFF; AUTO: where they are")
set_property(CACHE PYRDMA_VERBS PROPERTY STRINGS ON OFF AUTO)
set(PYRDMA_SANITIZE "" CACHE STRING "Sanitizers: empty, address;undefined, or thread")
set_property(CACHE PYRDMA_SANITIZE PROPERTY STRINGS "" "address;undefined" "thread")

if(NOT PYRDMA_VERBS MATCHES "^(ON|OFF|AUTO)$")
  message(FATAL_ERROR "PYRDMA_VERBS is '${PYRDMA_VERBS}'; give ON, OFF or AUTO")
endif()
if(NOT PYRDMA_SANITIZE STREQUAL ""
   AND NOT PYRDMA_SANITIZE STREQUAL "address;undefined"
   AND NOT PYRDMA_SANITIZE STREQUAL "thread")
  message(FATAL_ERROR "PYRDMA_SANITIZE is '${PYRDMA_SANITIZE}'; "
                      "give an empty text, 'address;undefined' or 'thread'")
endif()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(PYRDMA_CCACHE ccache)
  mark_as_advanced(PYRDMA_CCACHE)
  if(PYRDMA_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${PYRDMA_CCACHE}")
  endif()
endif()
