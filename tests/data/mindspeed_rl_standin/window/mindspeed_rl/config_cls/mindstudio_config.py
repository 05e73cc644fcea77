"""Keys of the section that upstream's class of the same name reads, with their defaults."""

from standin_config import Section


class ProfilerConfig(Section):
    def __init__(self, config_dict):
        self.role = None
        self.profile = False
        self.mstx = False
        self.stage = "all"
        self.profile_save_path = ""
        self.profile_export_type = "text"
        self.profile_level = "level0"
        self.profile_with_memory = False
        self.profile_record_shapes = False
        self.profile_with_cpu = True
        self.profile_with_npu = True
        self.profile_with_module = False
        self.profile_step_start = 1
        self.profile_step_end = 2
        self.profile_analysis = False
        self.profile_ranks = "all"
        self.update(config_dict)


class MsprobeConfig(Section):
    def __init__(self, config_dict):
        self.role = None
        self.msprobe = False
        self.dump_path = "./msprobe_dump"
        self.key_data_dump = False
        self.configurations_dump = False
        self.actor_train_dump = False
        self.actor_infer_dump = False
        self.reference_dump = False
        self.step_start = 0
        self.step_end = 0
        self.update(config_dict)
