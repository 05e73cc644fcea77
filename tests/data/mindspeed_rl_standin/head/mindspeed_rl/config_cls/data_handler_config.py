from standin_config import Section


class DataHandlerConfig(Section):
    def __init__(self, values):
        self.append_eod = False
        self.cache_dir = None
        self.dataset_additional_keys = []
        self.dataset_impl = "mmap"
        self.enable_thinking = None
        self.handler_name = ""
        self.input = None
        self.interleave_probs = None
        self.json_keys = ["text"]
        self.keep_newlines = False
        self.log_interval = 100
        self.make_vocab_size_divisible_by = 128
        self.map_keys = None
        self.merge_file = None
        self.merge_group_keys = None
        self.n_subs = 1
        self.neat_pack = False
        self.output_prefix = None
        self.overwrite_cache = False
        self.pack = False
        self.pad_vocab_size_to = None
        self.placeholder_token = ""
        self.prompt_type = "empty"
        self.prompt_type_path = None
        self.reward_tokens = []
        self.script_data_dir = None
        self.seed = 1234
        self.seq_length = None
        self.split_sentences = False
        self.streaming = False
        self.tokenizer_name_or_path = None
        self.tokenizer_not_use_fast = True
        self.tokenizer_type = "HuggingFaceTokenizer"
        self.vocab_file = None
        self.workers = 1
        self.update(values)
