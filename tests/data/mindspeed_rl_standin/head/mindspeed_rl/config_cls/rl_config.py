use_remove_padding = False
