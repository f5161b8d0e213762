# One target per folder of src/. A room names the rooms that it may see; tools/check_rooms.py
# reads the same lines and checks every #include against them.

# skiff_room(NAME DEPS room... LIBS target...)
# Sources are all *.cc and *.cu of src/NAME (with SUBDIRS, of those folders too), less main.cc, *_test.cc and
# *_fuzz.cc. All *_test.cc make one test program NAME_test, so none can be forgotten.
function(skiff_room name)
  cmake_parse_arguments(ROOM "" "" "DEPS;LIBS;SUBDIRS;TEST_DEPS;TEST_LIBS" ${ARGN})
  set(dir ${CMAKE_SOURCE_DIR}/src/${name})
  set(patterns ${dir}/*.cc ${dir}/*.cu)
  foreach(sub ${ROOM_SUBDIRS})
    list(APPEND patterns ${dir}/${sub}/*.cc ${dir}/${sub}/*.cu)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "(_test|_fuzz|/main)\\.cc$")

  string(REPLACE "/" "_" target ${name})
  string(REPLACE "/" "_" deps "${ROOM_DEPS}")
  if(sources)
    add_library(${target} STATIC ${sources})
    target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${target} PUBLIC ${deps} ${ROOM_LIBS})
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE ${CMAKE_SOURCE_DIR}/src)
    target_link_libraries(${target} INTERFACE ${deps} ${ROOM_LIBS})
  endif()

  if(SKIFF_TESTS AND tests)
    add_executable(${target}_test ${tests})
    string(REPLACE "/" "_" test_deps "${ROOM_TEST_DEPS}")
    target_link_libraries(${target}_test PRIVATE ${target} ${test_deps} ${ROOM_TEST_LIBS} GTest::gtest_main GTest::gmock)
    target_compile_definitions(${target}_test PRIVATE
      SKIFF_SOURCE_DIR="${CMAKE_SOURCE_DIR}" SKIFF_SHARED_DIR="${SKIFF_SHARED_DIR}")
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
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
    add_dependencies(fuzzers ${name})
  endforeach()
endfunction()
