"""Its being here says that this checkout has the MindSpore back end."""
