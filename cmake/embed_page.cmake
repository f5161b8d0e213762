# Writes OUTPUT, a C++ file that defines skiff::page::page_bytes(): the web page as one HTML file, the same
# compressed, its ETag and its Content-Security-Policy. Run in a build (cmake -P); it needs nothing but CMake.
#   SOURCE   the folder with page.html, *.css and *.js
#   OUTPUT   the file to write; page.html, whole, is put beside it
#   STYLES   names of style sheets, in order, separated by commas
#   SCRIPTS  names of scripts, in order, separated by commas
# page.html holds the lines @STYLE@ and @SCRIPT@. The scripts become one module and so share one scope.

function(read_all out names)
  string(REPLACE "," ";" names "${names}")
  set(all "\n")
  foreach(name ${names})
    file(READ ${SOURCE}/${name} text)
    # A closing tag inside would end the element early, so that the rest became page text.
    if(text MATCHES "</(script|style)" OR text MATCHES "<!--")
      message(FATAL_ERROR "${name}: </script, </style or <!-- may not occur in what is put into a page")
    endif()
    string(APPEND all "${text}")
  endforeach()
  set(${out} "${all}" PARENT_SCOPE)
endfunction()

# The base64 of bytes that are given as hexadecimal digits.
function(base64_of_hex out hex)
  set(alphabet ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  set(text "")
  string(LENGTH "${hex}" length)
  math(EXPR missing "(6 - ${length} % 6) % 6 / 2")
  string(REPEAT 00 ${missing} zeros)
  string(REGEX MATCHALL "......" groups "${hex}${zeros}")
  foreach(group ${groups})
    foreach(shift 18 12 6 0)
      math(EXPR index "(0x${group} >> ${shift}) & 63")
      string(SUBSTRING ${alphabet} ${index} 1 letter)
      string(APPEND text ${letter})
    endforeach()
  endforeach()
  string(LENGTH "${text}" length)
  math(EXPR length "${length} - ${missing}")
  string(SUBSTRING "${text}" 0 ${length} text)
  string(REPEAT = ${missing} padding)
  set(${out} "${text}${padding}" PARENT_SCOPE)
endfunction()

function(hash_source out text)
  string(SHA256 hash "${text}")
  base64_of_hex(hash ${hash})
  set(${out} "'sha256-${hash}'" PARENT_SCOPE)
endfunction()

# A definition of a constexpr array with the bytes that are given as hexadecimal digits.
function(array_of_hex out name hex)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(REPEAT . 100 line)
  string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
  set(${out} "constexpr unsigned char ${name}[] = {\n${bytes}};\n" PARENT_SCOPE)
endfunction()

read_all(style "${STYLES}")
read_all(script "${SCRIPTS}")
hash_source(style_hash "${style}")
hash_source(script_hash "${script}")
file(READ ${SOURCE}/page.html page)
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@SCRIPT@" "${script}" page "${page}")

get_filename_component(folder ${OUTPUT} DIRECTORY)
file(WRITE ${folder}/page.html "${page}")
file(ARCHIVE_CREATE OUTPUT ${folder}/page.html.gz PATHS ${folder}/page.html FORMAT raw COMPRESSION GZip
     COMPRESSION_LEVEL 9)
file(READ ${folder}/page.html html HEX)
file(READ ${folder}/page.html.gz gzip HEX)
# The bytes 4 to 7 are the time of compression; without it the same sources give the same program.
string(SUBSTRING ${gzip} 0 8 head)
string(SUBSTRING ${gzip} 16 -1 rest)
set(gzip ${head}00000000${rest})
array_of_hex(html_array kHtml "${html}")
array_of_hex(gzip_array kGzip "${gzip}")
string(SHA256 etag "${page}")
string(SUBSTRING ${etag} 0 16 etag)

string(CONCAT policy
  "default-src 'none'; script-src ${script_hash}; style-src ${style_hash}; connect-src 'self'; "
  "img-src data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
  "require-trusted-types-for 'script'; trusted-types 'none'")

file(WRITE ${OUTPUT} "// Made by cmake/embed_page.cmake.
#include \"serve/page/page.h\"

namespace skiff::page {
namespace {

${html_array}
${gzip_array}
template <size_t N>
std::string_view text_of(const unsigned char (&bytes)[N]) {
  return {reinterpret_cast<const char*>(bytes), N};
}

}  // namespace

const PageBytes& page_bytes() {
  static const PageBytes page{
      .html = text_of(kHtml),
      .gzip = text_of(kGzip),
      .etag = \"${etag}\",
      .policy = \"${policy}\"};
  return page;
}

}  // namespace skiff::page
")
