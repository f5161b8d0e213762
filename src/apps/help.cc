#include "apps/help.h"

#include <fmt/format.h>

namespace skiff::apps {
namespace {

struct About {
  Commands command;
  std::string_view usage, purpose, example;
};

constexpr About kAbout[] = {
    {kServe, "MODEL [flags]", "Serve a model over an OpenAI-compatible HTTP API.",
     "skiff serve models/demo --port 8000 --max-num-seqs 16"},
    {kRoute, "[flags]",
     "Pass requests on to several servers, to each those prompts whose beginning it has seen "
     "(docs/routing.md).",
     "skiff route --backends http://10.0.0.1:8000,http://10.0.0.2:8000 --port 9000"},
    {kPredict, "MODEL (--prompt TEXT | --prompt-token-ids IDS | --data-file F) [flags]",
     "Generate for some prompts and print JSON lines {\"src\",\"tgt\",\"output\",\"token_ids\","
     "\"finish_reason\"}.",
     "skiff predict models/demo --prompt \"What is 27 + 45?\""},
    {kChat, "MODEL [flags]",
     "Chat in the terminal. /reset forgets, /exit leaves, Ctrl-C stops an answer.",
     "skiff chat models/demo"},
    {kBench, "(latency|throughput|steps|simulate) MODEL [flags]\n       skiff bench serve [flags]",
     "latency, throughput: the engine against this machine's own limit, its answers checked "
     "first. "
     "steps: the time of a step against its rows. serve: requests to a running server (--url). "
     "simulate: the scheduler on a machine of "
     "numbers.",
     "skiff bench latency models/demo --input-len 256 --output-len 64\n"
     "  skiff bench serve --url http://127.0.0.1:8000 --num-prompts 100 --concurrency 16"},
    {kTokenize, "MODEL [flags]", "JSON strings on stdin, one a line, become arrays of token ids.",
     "echo '\"Hello\"' | skiff tokenize models/demo"},
    {kConstrain, "MODEL (--json-schema | --regex | --grammar | --choice | --structural-tag) FILE",
     "JSON strings on stdin, one a line, are judged by a constraint: {\"accepts\",\"at\","
     "\"compile_ms\",\"mask_us\"}. A constraint that cannot be honoured: one line with the JSON "
     "pointer, exit code 3.",
     "echo '\"{\\\"a\\\": 1}\"' | skiff constrain models/demo --json-object"},
    {kQuantize, "MODEL --to FORMAT --out FOLDER [--data JSONL] [flags]",
     "Write a model folder whose weights have 8 or 4 bits, calibrated on texts, and say what that "
     "costs in quality (docs/quantization.md).",
     "skiff quantize models/demo --to gptq --out demo-int4"},
    {kDownload, "NAME --mirror URL [flags]",
     "Copy a model's folder from a mirror. What broke off is taken up again, what has a checksum "
     "is checked, and a file gets its name only when it is complete.",
     "skiff download org/model --mirror https://mirror.example.org --output models/model"},
    {kStart, "MODEL [flags of skiff serve] [flags]",
     "Start a server in the background, with its log and its process in log/, and wait until it is "
     "ready.",
     "skiff start models/demo --port 8000"},
    {kStop, "[SECONDS] [flags]",
     "End a server that skiff start has started: replies are finished, and cut off after SECONDS.",
     "skiff stop --port 8000"},
    {kInspect, "MODEL [flags]", "Print architecture, sizes and the memory plan. Loads no weights.",
     "skiff inspect models/demo --max-model-len 4096"},
};

std::string value_name(const Flag& flag) {
  switch (flag.kind) {
    case Kind::kSwitch:
      return "";
    case Kind::kInt:
      return " N";
    case Kind::kFloat:
      return " X";
    case Kind::kChoice:
      return fmt::format(" {}", flag.choices);
    case Kind::kText:
      return " TEXT";
  }
  return "";
}

std::string flag_line(const Flag& flag) {
  const std::string left = fmt::format("  --{}{}", flag.name, value_name(flag));
  const std::string fallback = flag.fallback.empty() ? "" : fmt::format(" [{}]", flag.fallback);
  return fmt::format("{:<38}{}{}{}\n", left, left.size() >= 38 ? "\n" + std::string(38, ' ') : "",
                     flag.help, fallback);
}

std::string names_of(const FlagGroup& group, Commands command) {
  std::string out = "  ";
  size_t column = 2;
  for (const Flag& flag : group.flags) {
    if (!(flag.commands & command)) continue;
    if (column + flag.name.size() > 96) {
      out += "\n  ";
      column = 2;
    }
    out += fmt::format("--{} ", flag.name);
    column += flag.name.size() + 3;
  }
  return out + "\n";
}

}  // namespace

std::string general_help() {
  std::string out =
      "skiff -- load a published language model, run it, serve it\n\nUsage: skiff COMMAND ...\n\n";
  for (const About& about : kAbout)
    out += fmt::format("  {:<9} {}\n", command_name(about.command), about.purpose);
  return out +
         "  version   Print the version.\n\n"
         "skiff COMMAND --help explains every flag. Start with:\n\n"
         "  skiff serve models/demo\n"
         "  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\\n"
         "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"What is the capital of "
         "France?\"}]}'\n";
}

std::string command_help(Commands command) {
  std::string out;
  for (const About& about : kAbout)
    if (about.command == command)
      out = fmt::format("skiff {} {}\n\n{}\n\nExample:\n  {}\n", command_name(command), about.usage,
                        about.purpose, about.example);
  for (const FlagGroup& group : flag_groups()) {
    std::string lines;
    bool later = false;
    for (const Flag& flag : group.flags) {
      if (!(flag.commands & command)) continue;
      later |= flag.standing != Standing::kApplied;
      lines += flag_line(flag);
    }
    if (!lines.empty())
      out += fmt::format("\n{}:\n{}", group.heading, later ? names_of(group, command) : lines);
  }
  return out +
         "\nFlags are accepted with - or _, as --flag VALUE or --flag=VALUE; switches also as "
         "--no-flag.\n";
}

std::string parameters_markdown() {
  std::string out;
  for (const FlagGroup& group : flag_groups()) {
    out += fmt::format("\n## {}\n\n| flag | default | commands | meaning |\n|---|---|---|---|\n",
                       group.heading);
    for (const Flag& flag : group.flags) {
      std::string commands;
      for (const About& about : kAbout)
        if (flag.commands & about.command)
          commands += fmt::format("{}{}", commands.empty() ? "" : " ", command_name(about.command));
      std::string help(flag.help);
      if (flag.kind == Kind::kChoice) help += fmt::format(" One of {}.", flag.choices);
      if (!flag.alias.empty()) help += fmt::format(" Also `--{}`.", flag.alias);
      for (size_t i = 0; (i = help.find('|', i)) != std::string::npos; i += 2) help.insert(i, "\\");
      out += fmt::format("| `--{}` | {} | {} | {} |\n", flag.name, flag.fallback, commands, help);
    }
  }
  return out;
}

}  // namespace skiff::apps
