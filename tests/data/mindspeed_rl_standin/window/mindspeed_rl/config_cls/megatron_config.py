ai_framework = "mindspore"
