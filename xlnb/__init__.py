"""Cross-lingual pretraining in notebooks: XLM-E, XY-LENT, MetaXLM, VECO, static + contextual embeddings.

Nothing is imported with the package: import the module that has what you need.

    from xlnb.retrieval import encode            # sentence vectors out of any layer of a saved encoder
    vectors = encode(["Guten Morgen", "Good morning"], "path/of/a/model", layer=8)

    from xlnb.alignment import align              # word links with scores
    links = align([("Guten Morgen", "Good morning")], "path/of/a/model")

    from xlnb.sampling import entropic_sampling  # XY-LENT's sampling: pair -> probability
    shares = entropic_sampling({"de-en": 1000, "en-sw": 10, "de-sw": 1})

Each module is generated from a notebook in nbs/ that explains it. In reading order:

    core              What every notebook stands on: where files are, seeds, errors that help, run records, one figure style
    corpora           Text, bitext and n-way text as plain records, read as streams from the published formats
    formats           One strict reader for each form in which bitext, gold alignments, dictionaries and web text are published
    contamination     Test lines in the training text, word for word or nearly; repeats; whether a file is in the language it claims
    catalogue         Published sets by name: where they come from, on what terms, which bytes, and how they become streams and tests
    cldr              Real phrases in 113 languages with gold alignments and labels, out of Unicode CLDR
    vocab             One SentencePiece vocabulary for all languages, and the Hugging Face tokenizer that gives the same ids
    vocap             How many pieces each language gets in the shared vocabulary: a place goes where it gains most
    matching          Which pieces of a new vocabulary an old one knows already: the word vectors that a model can take over
    tokens            Tokens on disk, mapped into memory: built in parallel, restartable, read as blocks of text and bundles of pairs
    sampling          Which language or pair comes next: exponents, a mixture whose position is a formula, and pairs with given languages
    data              Corpus, vocabulary and token store by one call, kept under `runs/`; the batches of a run; what held-out text is measured against
    terminal          What makes `papermill nbs/03_xlm_e.ipynb -p size base` work as typed, show how far it is, and refuse a misspelt parameter
    encoder           One Transformer: sizes, gated relative position bias, packed batches, a cross-attention plug, hidden states, save and load
    kernels           The vocabulary head on a GPU: what loss, accuracy and samples need, in one pass over the vocabulary, in Triton
    foreign           RoBERTa, XLM-R, BERT and ELECTRA as this encoder, with equal hidden states
    heads             What stands on the encoder: language models, replaced token detection, fine-tuning heads, and their Auto classes
    initialisation    A masked language model for a new vocabulary, begun from any encoder that lies in a folder
    objectives        What a cross-lingual encoder is trained to predict: masked tokens in text and in translation pairs, replaced tokens, and which sentence translates which
    training          One loop, on one process or many: pooled losses, a schedule, checkpoints that survive anything, a promise about time
    retrieval         Sentence vectors from any layer, nearest neighbours in blocks, accuracy both ways, baselines that know no meaning
    ibm               Which word translates which, learned by counting; gold links and the error rate that judges all aligners
    alignment         Which word translates which: links out of any layer of an encoder, their error rate by layer, and the command line
    probes            Learn a small task in one language, take the test in the others, and know what the score would be without a model
    held_out          What a network knows of text that it never read: masked and replaced tokens, by language, beside a translation; and by layer: sentences, words, transfer
    reports           What a run leaves behind, read back: groups of runs, mean and spread over seeds, model cards
    experiments       Named grids of runs: what has no record yet is run through papermill, what has one is drawn
    plans             What a run will cost before it starts: weights, FLOPs, memory, hours, disk
    pretraining       All that a paper needs around its method: the settings that every run has, identity and folder of a run, phases, train and save, one `run(recipe)`, a command line
    claims            What a paper says, as comparisons of arms and rules over them; a direction over seeds, and whether the better arm beats its baseline
    xlm_e             Cross-lingual pretraining by detecting replaced tokens, in text and in translation pairs
    xlm_e_results     Three findings over five seeds, every claim of the paper judged, the paper's own figures
    xy_lent           Translation pairs between all languages instead of English pairs alone, drawn so that no pair is lost
    dro               Pairs with a high loss are drawn more often, within a chi-square ball; what that says about their text
    dro_runs          A run that reads more of the pairs it finds hard, and what the path of its sampling says about the bitext
    continued         What a domain in one language costs all the others, and whether the discriminator survives it
    xy_lent_results   The paper's figures redrawn from its tables, and its claims judged wherever tables or samplers are enough
    meta_xlm          Start a cross-lingual model from a monolingual one, and tell what it inherits from what it learns
    meta_xlm_results  Three findings over five seeds, every claim of the paper judged, the paper's own tables
    veco              Masked words guessed from a sentence, and again with its translation in view: cross-attention that is plugged in and out
    benchmarks        Speed and memory beside the alternatives, in turns in one run; what grows with the corpus, and what does not
"""

__version__ = "0.1.0"
