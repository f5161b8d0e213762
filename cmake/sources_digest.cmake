# Writes OUTPUT, a C++ file that defines skiff::engine::sources_digest(): SHA-256 of everything that decides
# what a kernel computes. Run in every build (cmake -P); OUTPUT is left alone when it would not change.
#   SOURCE   the src/ folder
#   FLAGS    compilers, their versions and flags, as one text
#   OUTPUT   the file to write
# The digest is of names and contents only, so it is the same for the same sources anywhere.
set(listing "${FLAGS}\n")
foreach(folder arch model ops tensor weights)
  file(GLOB_RECURSE files RELATIVE ${SOURCE} ${SOURCE}/${folder}/*.h ${SOURCE}/${folder}/*.cc
       ${SOURCE}/${folder}/*.cu ${SOURCE}/${folder}/*.cuh)
  list(FILTER files EXCLUDE REGEX "(_test|_fuzz)\\.cc$|_testing\\.h$|(^|/)ops/suite/")
  list(SORT files)
  foreach(file ${files})
    file(SHA256 ${SOURCE}/${file} sum)
    string(APPEND listing "${file} ${sum}\n")
  endforeach()
endforeach()
string(SHA256 digest "${listing}")
set(text "// Made by cmake/sources_digest.cmake.
#include \"engine/fingerprint.h\"

namespace skiff::engine {

std::string_view sources_digest() { return \"${digest}\"; }

}  // namespace skiff::engine
")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT "${before}" STREQUAL "${text}")
  file(WRITE ${OUTPUT} "${text}")
endif()
