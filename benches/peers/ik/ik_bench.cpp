// ik_llama.cpp with the options of `peer bench`: the same tokens in the same batches, the median of a few
// runs after a warm-up, one JSON line. With `--repack on` it repacks weights as it loads them, into its
// formats with interleaved rows.

#include "llama.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

const char USAGE[] =
    "ik_bench bench -m FILE [-t 1] [-p 512] [-n 128] [--depth 0] [--seqs 1] [--fa on|off] [--cache f16|q8_0] [--reps 3] "
    "[--repack on|off]";
constexpr int N_BATCH = 2048;

class Args {
public:
    Args(int count, char ** words) {
        if (count < 2 || std::string(words[1]) != "bench" || count % 2 != 0) throw std::runtime_error(USAGE);
        for (int i = 2; i + 1 < count; i += 2) flags[words[i]] = words[i + 1];
    }

    std::string text(const std::string & flag, const std::string & otherwise) const {
        const auto found = flags.find(flag);
        return found == flags.end() ? otherwise : found->second;
    }

    int number(const std::string & flag, int otherwise) const {
        const std::string value = text(flag, std::to_string(otherwise));
        char * end = nullptr;
        const long n = std::strtol(value.c_str(), &end, 10);
        if (*end != '\0' || n < 0 || n > 1 << 24) throw std::runtime_error(flag + " " + value + ": not a number");
        return int(n);
    }

    bool is_on(const std::string & flag, bool otherwise) const {
        const std::string value = text(flag, otherwise ? "on" : "off");
        if (value != "on" && value != "off") throw std::runtime_error(flag + " " + value + ": not on or off");
        return value == "on";
    }

private:
    std::map<std::string, std::string> flags;
};

struct Plan {
    std::string model, cache;
    int threads, n_prompt, n_gen, depth, seqs, reps;
    bool flash, repack;

    explicit Plan(const Args & args)
        : model(args.text("-m", "")), cache(args.text("--cache", "f16")), threads(args.number("-t", 1)),
          n_prompt(args.number("-p", 512)), n_gen(args.number("-n", 128)), depth(args.number("--depth", 0)),
          seqs(std::max(1, args.number("--seqs", 1))), reps(std::max(1, args.number("--reps", 3))),
          flash(args.is_on("--fa", true)), repack(args.is_on("--repack", false)) {
        if (cache != "f16" && cache != "q8_0") throw std::runtime_error("--cache " + cache + ": not f16 or q8_0");
    }

    int n_tokens() const { return depth + std::max(n_prompt, n_gen); }
};

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Engine {
public:
    explicit Engine(const Plan & plan) : batch(llama_batch_init(N_BATCH, 0, 1)) {
        auto load = llama_model_default_params();
        load.repack_tensors = plan.repack;
        load.use_mmap = !plan.repack;
        model.reset(llama_model_load_from_file(plan.model.c_str(), load));
        if (!model) throw std::runtime_error(plan.model + ": cannot be loaded");
        auto shape = llama_context_default_params();
        shape.n_ctx = uint32_t((plan.n_tokens() + 255) / 256 * 256 * plan.seqs);
        shape.n_batch = N_BATCH;
        shape.n_ubatch = 512;
        shape.n_seq_max = uint32_t(plan.seqs);
        shape.n_threads = shape.n_threads_batch = uint32_t(plan.threads);
        shape.flash_attn = plan.flash;
        shape.type_k = shape.type_v = plan.cache == "f16" ? GGML_TYPE_F16 : GGML_TYPE_Q8_0;
        context.reset(llama_init_from_model(model.get(), shape));
        if (!context) throw std::runtime_error("no context of that shape");
        // Arbitrary tokens, those of `peer`: speed does not depend on them.
        const auto n_vocab = uint32_t(llama_n_vocab(model.get()));
        for (uint64_t i = 1; i <= uint64_t(plan.n_tokens()); i++) {
            tokens.push_back(llama_token(uint32_t((i * 0x9e3779b97f4a7c15u) >> 33) % n_vocab));
        }
    }

    ~Engine() { llama_batch_free(batch); }
    Engine(const Engine &) = delete;

    /// Evaluate tokens `start..end` of a sequence. The last one gets logits.
    void evaluate(int start, int end, int seq) {
        for (int from = start; from < end; from += N_BATCH) {
            batch.n_tokens = 0;
            const int to = std::min(end, from + N_BATCH);
            for (int pos = from; pos < to; pos++) push(pos, seq, pos + 1 == end);
            decode();
        }
    }

    /// Evaluate one token of every sequence.
    void step(int pos, int seqs) {
        batch.n_tokens = 0;
        for (int seq = 0; seq < seqs; seq++) push(pos, seq, true);
        decode();
    }

    void rewind(int depth, int seqs) {
        for (int seq = 0; seq < seqs; seq++) {
            // Recurrent states cannot be rolled back.
            if (!llama_kv_cache_seq_rm(context.get(), seq, depth, -1)) throw std::runtime_error("rolling back failed");
        }
    }

private:
    struct Free {
        void operator()(llama_model * x) const { llama_free_model(x); }
        void operator()(llama_context * x) const { llama_free(x); }
    };

    void push(int pos, int seq, bool has_logits) {
        const int i = batch.n_tokens++;
        batch.token[i] = tokens[size_t(pos)];
        batch.pos[i] = pos;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = seq;
        batch.logits[i] = has_logits;
    }

    void decode() {
        if (llama_decode(context.get(), batch) != 0) throw std::runtime_error("decoding failed");
        llama_synchronize(context.get());
    }

    std::unique_ptr<llama_model, Free> model;
    std::unique_ptr<llama_context, Free> context;
    llama_batch batch;
    std::vector<llama_token> tokens;
};

/// Return the median seconds of the repetitions, after one that does not count. Each begins behind the
/// depth.
template <typename Work> double median(const Plan & plan, Engine & engine, Work work) {
    std::vector<double> seconds;
    for (int i = 0; i <= plan.reps; i++) {
        const double began = now();
        work();
        if (i > 0) seconds.push_back(now() - began);
        engine.rewind(plan.depth, plan.seqs);
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
}

/// Return the peak resident memory of this process on Linux; 0 elsewhere.
double peak_rss_mib() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.rfind("VmHWM:", 0) == 0) return std::strtod(line.c_str() + 6, nullptr) / 1024;
    }
    return 0;
}

std::string file_name(std::string path) {
    path = path.substr(path.rfind('/') + 1);
    std::replace_if(path.begin(), path.end(), [](char c) { return c == '"' || c == '\\'; }, '_');
    return path;
}

void bench(const Plan & plan) {
    const double began = now();
    Engine engine(plan);
    const double load_s = now() - began;
    for (int seq = 0; seq < plan.seqs; seq++) engine.evaluate(0, plan.depth, seq);
    const double prompt_s =
        median(plan, engine, [&] { engine.evaluate(plan.depth, plan.depth + plan.n_prompt, 0); });
    const double gen_s = median(plan, engine, [&] {
        for (int i = 0; i < plan.n_gen; i++) engine.step(plan.depth + i, plan.seqs);
    });
    std::printf("{\"model\":\"%s\",\"threads\":%d,\"n_prompt\":%d,\"n_gen\":%d,\"depth\":%d,\"seqs\":%d,\"flash\":\"%s\","
                "\"repack\":%s,\"prompt_tps\":%.2f,\"gen_tps\":%.2f,\"load_s\":%.3f,\"peak_rss_mib\":%.1f}\n",
                file_name(plan.model).c_str(), plan.threads, plan.n_prompt, plan.n_gen, plan.depth, plan.seqs,
                plan.flash ? "On" : "Off", plan.repack ? "true" : "false", plan.n_prompt / prompt_s,
                double(plan.n_gen) * plan.seqs / gen_s, load_s, peak_rss_mib());
}

} // namespace

int main(int count, char ** words) {
    try {
        const Plan plan{Args(count, words)};
        llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
        llama_backend_init();
        bench(plan);
        return 0;
    } catch (const std::exception & error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
