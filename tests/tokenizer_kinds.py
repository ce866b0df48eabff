"Tiny tokenizers, trained on the embedded corpus: of XLM-R's, mBERT's, Gemma's and RoBERTa's kinds, and one of our own."

import json
from collections import Counter
from functools import cache

from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    BertTokenizerFast,
    PreTrainedTokenizerFast,
    RobertaTokenizerFast,
    XLMRobertaTokenizerFast,
)

from xlnb.text.cldr import cldr_corpus
from xlnb.text.vocab import train_sentencepiece, train_vocab

LANGS = ("de", "hi", "ru")


@cache
def text(langs=LANGS) -> dict:
    "Lines of each language."
    corpus = cldr_corpus(langs, 1, 400, 1, 1)
    return {lang: list(corpus.text[lang]) for lang in langs}


def all_lines(langs=LANGS) -> list[str]:
    return [line for lines in text(langs).values() for line in lines]


def xlmr(folder):
    "SentencePiece Unigram in XLM-R's layout and class: <s> <pad> </s> <unk> at 0 to 3, <mask> at the end."
    import sentencepiece.sentencepiece_model_pb2 as protocol

    model = protocol.ModelProto.FromString(train_sentencepiece(all_lines(), 600))
    scores = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>")]
    scores += [(piece.piece, piece.score) for piece in model.pieces[3:]]
    tokenizer = XLMRobertaTokenizerFast(vocab=[*scores, ("<mask>", 0.0)])
    tokenizer.save_pretrained(folder)


def mbert(folder):
    "WordPiece of mBERT's class, with unused tokens before its special ones."
    words = Counter(word for line in all_lines() for word in line.split())
    letters = sorted({letter for word in words for letter in word})
    special = [
        "[PAD]",
        *(f"[unused{n}]" for n in range(1, 100)),
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
    ]
    subwords = [*letters, *(f"##{letter}" for letter in letters)]
    subwords += [word for word, _ in words.most_common(200)]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys([*special, *subwords]))}
    BertTokenizerFast(vocab=vocabulary, do_lower_case=False).save_pretrained(folder)


def gemma(folder):
    "BPE with byte fallback; it has learned from German and Russian alone, so that Hindi is spelled in bytes."
    names = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<unused0>", "<unused1>"]
    head = [*names, *(f"<0x{byte:02X}>" for byte in range(256))]
    learner = Tokenizer(models.BPE(unk_token="<unk>"))
    learner.normalizer = normalizers.Replace(" ", "▁")
    learner.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=head, show_progress=False)
    learner.train_from_iterator(all_lines(("de", "ru")), trainer)
    state = json.loads(learner.to_str())["model"]
    merges = [tuple(merge) for merge in state["merges"]]
    model = models.BPE(state["vocab"], merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    backend = Tokenizer(model)
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    backend.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>",
        pair="<bos> $A <eos> $B <eos>",
        special_tokens=[("<bos>", 2), ("<eos>", 1)],
    )
    roles = {f"{role}_token": f"<{role}>" for role in ("bos", "eos", "pad", "unk", "mask")}
    PreTrainedTokenizerFast(tokenizer_object=backend, **roles).save_pretrained(folder)


def roberta(folder):
    "BPE of bytes, in RoBERTa's class: it has no unknown text, and a space is a part of the word behind it."
    head = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=head,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    learner.train_from_iterator(all_lines(), trainer)
    state = json.loads(learner.to_str())["model"]
    merges = [tuple(merge) for merge in state["merges"]]
    RobertaTokenizerFast(vocab=state["vocab"], merges=merges).save_pretrained(folder)


def trained(folder):
    "A Unigram of our own."
    train_vocab(text(), 600, folder)


KINDS = {"xlmr": xlmr, "mbert": mbert, "gemma": gemma, "roberta": roberta, "trained": trained}
# kind → ids of begin, padding, end, unknown, mask (None: the last)
SPECIAL = {
    "xlmr": (0, 1, 2, 3, None),
    "mbert": (101, 0, 102, 100, 103),
    "gemma": (2, 0, 1, 3, 4),
    "roberta": (0, 1, 2, 3, 4),
    "trained": (0, 1, 2, 3, None),
}
