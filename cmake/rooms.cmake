# One target per folder of src/. A room names the rooms that it may see; tools/check_rooms.py
# reads the same lines and checks every #include against them.

# Absolute paths are in a header of their own, so that only its includers differ from one checkout to another and a
# compiler cache serves all others.
set(SKIFF_GENERATED ${CMAKE_BINARY_DIR}/generated)
configure_file(${CMAKE_CURRENT_LIST_DIR}/skiff_test_paths.h.in ${SKIFF_GENERATED}/skiff_test_paths.h)

# skiff_room(NAME DEPS room... LIBS target...)
# Where CUDA is built, X_cuda.cc stands in for X.cc. A room WITHOUT_CUDA, WITHOUT_GRPC or
# WITHOUT_REDIS has only those files where that is not built, and all but absent.cc where it is.
# Sources are all *.cc and *.cu of src/NAME (with SUBDIRS, of those folders too), less main.cc,
# *_test.cc and *_fuzz.cc. All *_test.cc make one test program NAME_test, so none can be forgotten.
function(skiff_room name)
  cmake_parse_arguments(ROOM "" "" "DEPS;LIBS;PRIVATE_LIBS;SUBDIRS;TEST_DEPS;TEST_LIBS;WITHOUT_CUDA;WITHOUT_GRPC;WITHOUT_REDIS" ${ARGN})
  set(dir ${CMAKE_SOURCE_DIR}/src/${name})
  set(patterns ${dir}/*.cc ${dir}/*.cu)
  foreach(sub ${ROOM_SUBDIRS})
    list(APPEND patterns ${dir}/${sub}/*.cc ${dir}/${sub}/*.cu)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  if(SKIFF_CUDA)
    foreach(source ${sources})
      string(REGEX REPLACE "_cuda\\.cc$" ".cc" twin ${source})
      if(NOT twin STREQUAL source)
        list(REMOVE_ITEM sources ${twin})
      endif()
    endforeach()
  else()
    list(FILTER sources EXCLUDE REGEX "(_cuda\\.cc|\\.cu)$")
  endif()
  set(tests ${sources})
  foreach(part CUDA GRPC REDIS)
    if(ROOM_WITHOUT_${part} AND NOT SKIFF_${part})
      list(TRANSFORM ROOM_WITHOUT_${part} PREPEND ${dir}/ OUTPUT_VARIABLE sources)
    elseif(ROOM_WITHOUT_${part})
      list(REMOVE_ITEM sources ${dir}/absent.cc)
    endif()
  endforeach()
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "(_test|_fuzz|/main)\\.cc$")

  string(REPLACE "/" "_" target ${name})
  string(REPLACE "/" "_" deps "${ROOM_DEPS}")
  if(sources)
    add_library(${target} STATIC ${sources})
    target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${target} PUBLIC ${deps} ${ROOM_LIBS} PRIVATE ${ROOM_PRIVATE_LIBS})
    # libskiff.so holds the same objects as the programs. None of their functions is ever replaced
    # from outside, so GCC need not forgo inlining; what else -fPIC costs, the linker takes out of a
    # program again.
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${target} INTERFACE ${deps} ${ROOM_LIBS})
  endif()

  if(SKIFF_TESTS AND tests)
    add_executable(${target}_test ${tests})
    string(REPLACE "/" "_" test_deps "${ROOM_TEST_DEPS}")
    target_link_libraries(${target}_test PRIVATE ${target} ${test_deps} ${ROOM_TEST_LIBS} GTest::gtest_main GTest::gmock)
    # -O1 compiles a test in two thirds of the time of -O3. The suite of ops computes much itself.
    if(NOT name STREQUAL "ops")
      target_compile_options(${target}_test PRIVATE $<$<CONFIG:Release>:-O1>)
    endif()
    target_include_directories(${target}_test PRIVATE ${SKIFF_GENERATED})
    add_test(NAME ${target} COMMAND ${target}_test)
  endif()
endfunction()

# All *_fuzz.cc of src/ become libFuzzer programs NAME_fuzz, built by the target `fuzzers`. One links
# its room, or, where that room stands on much that it does not touch, the sources in NAME_SOURCES
# (patterns) with the targets in NAME_LIBS.
function(skiff_fuzzers)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/*_fuzz.cc)
  add_custom_target(fuzzers)
  foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    file(RELATIVE_PATH relative ${CMAKE_SOURCE_DIR}/src ${source})
    string(REGEX MATCH "^[a-z]+" room ${relative})
    add_executable(${name} EXCLUDE_FROM_ALL ${source})
    if(${name}_SOURCES)
      file(GLOB alone CONFIGURE_DEPENDS ${${name}_SOURCES})
      list(FILTER alone EXCLUDE REGEX "_(test|fuzz)\\.cc$")
      target_sources(${name} PRIVATE ${alone})
      target_link_libraries(${name} PRIVATE ${${name}_LIBS})
    else()
      target_link_libraries(${name} PRIVATE ${room})
    endif()
    target_include_directories(${name} PRIVATE ${SKIFF_GENERATED})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
    add_dependencies(fuzzers ${name})
  endforeach()
endfunction()
