// An editor with undo over a language model: every line that is typed is evaluated, and can be
// taken back exactly, with its cost.
//
//     undo_editor MODEL.gguf
//
// Commands: a text is appended; "u" takes the last text back; "b" starts a branch at this place,
// and "s" goes over to it; "g" shows what the model would write next; "w FILE" and "r FILE" save
// and restore; "q" ends.
#include "backstitch.h"

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace {

struct Free {
    void operator()(llama_model *model) const { llama_model_free(model); }
    void operator()(llama_context *ctx) const { llama_free(ctx); }
};

class Editor {
public:
    explicit Editor(const char *path)
        : model_(llama_model_load_from_file(path, llama_model_default_params())) {
        llama_context_params params = llama_context_default_params();
        params.n_ctx = 0;
        params.n_seq_max = 2;
        params.kv_unified = true;
        ctx_.reset(llama_init_from_model(model_.get(), params));
    }

    bool is_open() const { return ctx_ != nullptr; }

    void append(const std::string &text) {
        std::vector<llama_token> tokens(text.size() + 2);
        const llama_vocab *vocab = llama_model_get_vocab(model_.get());
        int n = llama_tokenize(
            vocab, text.data(), int(text.size()), tokens.data(), int(tokens.size()), end() == 0,
            false);
        if (n <= 0) {
            return;
        }
        llama_batch batch = llama_batch_init(n, 0, 1);
        for (int i = 0; i < n; i++) {
            batch.token[i] = tokens[size_t(i)];
            batch.pos[i] = end() + i;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = seq_;
            batch.logits[i] = i + 1 == n;
        }
        batch.n_tokens = n;
        llama_pos before = end();
        if (llama_decode(ctx_.get(), batch) == 0) {
            marks_[size_t(seq_)].push_back(before);
        } else {
            std::cout << bst_last_error() << '\n';
        }
        llama_batch_free(batch);
    }

    void undo() {
        auto &marks = marks_[size_t(seq_)];
        if (marks.empty()) {
            return;
        }
        bst_rollback_cost cost{};
        if (bst_rollback(ctx_.get(), seq_, marks.back(), &cost) != 0) {
            std::cout << bst_last_error() << '\n';
            return;
        }
        marks.pop_back();
        std::cout << "back at " << end() << ": " << cost.replayed << " steps replayed, "
                  << cost.reevaluated << " tokens re-evaluated\n";
    }

    void branch() {
        llama_seq_id other = 1 - seq_;
        if (bst_fork(ctx_.get(), seq_, other) == 0) {
            marks_[size_t(other)] = marks_[size_t(seq_)];
        }
    }

    void change_over() { seq_ = 1 - seq_; }

    void next() {
        const llama_vocab *vocab = llama_model_get_vocab(model_.get());
        std::vector<float> logits(size_t(llama_vocab_n_tokens(vocab)));
        int n = bst_logits(ctx_.get(), seq_, logits.data(), int(logits.size()));
        if (n <= 0) {
            return;
        }
        size_t best = 0;
        for (size_t i = 1; i < logits.size(); i++) {
            best = logits[i] > logits[best] ? i : best;
        }
        char piece[256];
        int len = llama_token_to_piece(vocab, llama_token(best), piece, sizeof piece, 0, true);
        std::cout << "next: " << std::string(piece, size_t(len > 0 ? len : 0)) << '\n';
    }

    void save(const char *path) { tell(bst_save(ctx_.get(), seq_, path)); }
    void restore(const char *path) { tell(bst_restore(ctx_.get(), seq_, path)); }

private:
    llama_pos end() const {
        return llama_memory_seq_pos_max(llama_get_memory(ctx_.get()), seq_) + 1;
    }

    static void tell(int32_t result) {
        std::cout << (result == 0 ? "done" : bst_last_error()) << '\n';
    }

    std::unique_ptr<llama_model, Free> model_;
    std::unique_ptr<llama_context, Free> ctx_;
    std::vector<llama_pos> marks_[2];
    llama_seq_id seq_ = 0;
};

} // namespace

int main(int argc, char **argv) {
    if (argc != 2) {
        std::cerr << "usage: undo_editor MODEL.gguf\n";
        return 2;
    }
    Editor editor(argv[1]);
    if (!editor.is_open()) {
        std::cerr << bst_last_error() << '\n';
        return 1;
    }
    std::string line;
    while (std::getline(std::cin, line) && line != "q") {
        if (line == "u") {
            editor.undo();
        } else if (line == "b") {
            editor.branch();
        } else if (line == "s") {
            editor.change_over();
        } else if (line == "g") {
            editor.next();
        } else if (line.rfind("w ", 0) == 0) {
            editor.save(line.c_str() + 2);
        } else if (line.rfind("r ", 0) == 0) {
            editor.restore(line.c_str() + 2);
        } else {
            editor.append(line);
        }
    }
    return 0;
}
