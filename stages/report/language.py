"""The language of a page: English, or Chinese with report.language=zh.

Pages are written in English, in templates, scripts and functions. Each of their texts goes through
`translate`, which returns the Chinese text while `page_language("zh")` holds. Names of metrics, keys and
stages, texts of models and lines of logs are values and stay as they are.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_current = ContextVar("_current", default="en")


@contextmanager
def page_language(name: str) -> Iterator[None]:
    """Make `translate` return texts in a language (en or zh) in this block of this thread."""
    token = _current.set(name)
    try:
        yield
    finally:
        _current.reset(token)


def language() -> str:
    """Return the language of the page that is being made."""
    return _current.get()


def translate(text: str, **values: object) -> str:
    """Return a text in the language of the page, with `values` in the places of their {names}.

    A text without a translation, such as the name of a stage, is returned as it is.
    """
    chosen = CHINESE.get(text, text) if language() == "zh" else text
    return chosen.format(**values) if values else chosen


def texts_of(script: str) -> dict[str, str]:
    """Return the translations that a page's scripts need; none in English."""
    if language() == "en":
        return {}
    return {english: chinese for english, chinese in CHINESE.items() if f'"{english}"' in script}


CHINESE = {
    # page: title, headings, navigation
    "A run": "一次运行",
    "run report": "运行报告",
    "GRPO run report": "GRPO 运行报告",
    "GRPO run report, so far": "GRPO 运行报告（进行中）",
    "Contents": "目录",
    "Result": "结果",
    "Training": "训练",
    "Completions": "回答",
    "Before and after": "训练前后",
    "Warm-up": "监督预热",
    "Stages and time": "阶段与耗时",
    "Data": "数据",
    "Run": "运行",
    "Run {id}": "运行 {id}",
    "Config": "配置",
    "Environment": "环境",
    "Artifacts": "产物",
    "All runs": "全部运行",
    "started {when}, {seconds} so far": "开始于 {when}，已运行 {seconds}",
    "started {when}, {time} so far": "开始于 {when}，已运行 {time}",
    "started {when}, and reused all stages": "开始于 {when}，所有阶段均来自缓存",
    "finished {when}": "完成于 {when}",
    "{seconds} in stages": "各阶段共 {seconds}",
    "seed": "随机种子",
    "commit": "提交",
    "host": "主机",
    "run": "运行",
    "This page reloads every ten seconds.": "本页每十秒刷新一次。",
    "It ended before its report was made; this page shows what it left.": (
        "该运行在生成报告之前已结束；本页显示它留下的内容。"
    ),
    (
        "Nothing is loaded from a network: plotly.min.js next to this page draws the charts. Control and "
        "direction characters in texts are shown as ␀ or ‹U+202E›."
    ): (
        "本页不从网络加载任何内容：图表由同目录下的 plotly.min.js 绘制。文本中的控制字符和方向字符显示为 "
        "␀ 或 ‹U+202E›。"
    ),
    # durations and numbers
    "{s} s": "{s} 秒",
    "{min} min {s} s": "{min} 分 {s} 秒",
    "{h} h {min} min": "{h} 小时 {min} 分",
    "{min} min": "{min} 分钟",
    "%-d %B, %H:%M": "%-m 月 %-d 日 %H:%M",
    "{time} left": "还需 {time}",
    "at least {time} left": "至少还需 {time}",
    "{count} characters left out": "省略 {count} 个字符",
    "{count} of {total}": "{count} / {total}",
    "{count} more": "另外 {count} 项",
    "and {count} more": "等另外 {count} 个",
    # states of runs, stages and points, and columns of stages
    "built": "本次生成",
    "cached": "缓存",
    "this page": "本页",
    "done": "完成",
    "running": "运行中",
    "waiting": "等待",
    "not run": "未运行",
    "finished": "完成",
    "failed": "失败",
    "interrupted": "中断",
    "stopped early": "提前停止",
    "died": "异常终止",
    "pending": "待运行",
    "invalid": "无效",
    "stage": "阶段",
    "state": "状态",
    "took": "耗时",
    "step": "步",
    "reward": "奖励",
    "accuracy": "准确率",
    "tokens/s": "token/秒",
    "time left": "剩余时间",
    "{state} in {stage}": "在 {stage} 阶段{state}",
    "in {stage}": "（{stage} 阶段）",
    # result
    "Before GRPO": "GRPO 之前",
    "Before GRPO, after sft": "GRPO 之前（sft 之后）",
    "After GRPO": "GRPO 之后",
    "Gain": "提升",
    "greedy, held out": "贪心解码，留出集",
    "percentage points": "个百分点",
    "within noise": "在误差范围内",
    "{share} before": "之前 {share}",
    "{low} to {high} % (95 % interval)": "{low} 至 {high} %（95 % 区间）",
    "Greedy accuracy": "贪心准确率",
    "Worked answers": "写出步骤的回答",
    "Before and after GRPO": "GRPO 前后",
    "Held-out set.": "留出集。",
    "Held-out set, {count} prompts.": "留出集，{count} 个提示词。",
    "Open circle: before; filled: after.": "空心圆：之前；实心圆：之后。",
    "{measure}: {before} before, {after} after.": "{measure}：之前 {before}，之后 {after}。",
    "What training changed": "训练改变了什么",
    "All held-out prompts, answered greedily before and after.": "全部留出集提示词，训练前后的贪心回答。",
    "The recorded held-out prompts, answered greedily before and after.": (
        "已记录的留出集提示词，训练前后的贪心回答。"
    ),
    "Prompts by what training changed": "按训练前后的对错统计的提示词数",
    "A link leads to the recorded prompts of its kind.": "链接指向该类中已记录的提示词。",
    "fixed": "改对",
    "broken": "改错",
    "both right": "均对",
    "both wrong": "均错",
    "Accuracies are known as soon as evaluate has ended.": "evaluate 结束后即可得知准确率。",
    "No evaluation result: accuracy before and after GRPO is not known.": (
        "没有评测结果：GRPO 前后的准确率未知。"
    ),
    "Gates": "门槛",
    "Gates: the model is not exported, because it does not pass all of them": (
        "门槛：模型没有通过全部门槛，因此不导出"
    ),
    "Gate": "门槛",
    "Measure": "指标",
    "Limit": "限值",
    "Measured": "实测",
    "Decision": "结论",
    "greedy accuracy after GRPO": "GRPO 后的贪心准确率",
    "gain in greedy accuracy": "贪心准确率的提升",
    "passed": "通过",
    # charts: titles and explanations
    "Reward": "奖励",
    (
        "Weighted sum of the reward functions, mean over the step's completions. Band, here and below: two "
        "standard errors over the step's groups."
    ): "各奖励函数的加权和，取该步所有回答的平均值。此处及以下的色带：按该步各组计算的两倍标准误差。",
    "Weighted sum of the reward functions, mean over the step's completions.": (
        "各奖励函数的加权和，取该步所有回答的平均值。"
    ),
    "Accuracy while sampling": "采样准确率",
    "Share of completions that are right. Band: Wilson's interval, which stays between 0 and 100 %.": (
        "正确回答的比例。色带：Wilson 区间，始终在 0 与 100 % 之间。"
    ),
    "Share of completions that are right.": "正确回答的比例。",
    "Accuracy on held-out prompts": "留出集准确率",
    "Greedy, while training.": "训练过程中的贪心解码。",
    "Reward by function": "各奖励函数",
    "Mean of each reward function before weighting.": "每个奖励函数加权之前的平均值。",
    "KL to the reference": "与参考策略的 KL",
    "Distance of the policy from its start (k3 estimate, nats).": (
        "策略与其起点的距离（k3 估计，单位 nat）。"
    ),
    "Loss": "损失",
    "Clipped surrogate with the KL term. It does not measure progress.": (
        "裁剪后的目标函数加 KL 项。它不反映训练进展。"
    ),
    "Entropy": "熵",
    "Entropy of the next token, nats. Near zero, sampling no longer explores.": (
        "下一个 token 的熵，单位 nat。接近零时，采样不再探索。"
    ),
    "Completion length": "回答长度",
    "Tokens: mean and longest.": "token 数：平均值与最大值。",
    "Tokens, mean over the step.": "token 数，取该步的平均值。",
    "Signal": "训练信号",
    "Groups of equal rewards and clipped tokens give no gradient; cut completions reached the token limit.": (
        "奖励全部相等的组和被裁剪的 token 不产生梯度；被截断的回答达到了 token 上限。"
    ),
    "Sampling and training": "采样与训练的差异",
    (
        "Differences between the program that samples and the one that trains: of a completion's mean log-"
        "probability, the largest of a token's probability, and the KL. Zero is best."
    ): (
        "采样程序与训练程序之间的差异：回答平均对数概率之差、单个 token 概率的最大差，以及 KL。越接近零越好。"
    ),
    "Staleness": "权重滞后",
    "Updates between the weights that generated a token and those that train on it.": (
        "生成 token 的权重与用它训练的权重之间相隔的更新次数。"
    ),
    "Waiting": "等待",
    "Share of the step in which training waits for completions.": "训练等待回答的时间占该步的比例。",
    "Gradient norm": "梯度范数",
    "Before clipping.": "裁剪之前。",
    "Learning rate": "学习率",
    "Learning rate of the optimizer, per step.": "优化器每一步的学习率。",
    "Throughput": "吞吐量",
    "Tokens per second over the complete step.": "整个步内每秒的 token 数。",
    "Warm-up loss": "预热损失",
    "Cross-entropy per answer token, nats.": "每个回答 token 的交叉熵，单位 nat。",
    "Accuracy checks": "准确率检查",
    "Greedy, on held-in prompts; they decide when warm-up ends.": (
        "在训练集内提示词上的贪心解码；据此决定何时结束预热。"
    ),
    # charts: numbers and tools
    (
        "{label}: {first} at step {first_step}, {last} at step {last_step}; lowest {low} at step {low_step}, "
        "highest {high} at step {high_step}."
    ): (
        "{label}：第 {first_step} 步 {first}，第 {last_step} 步 {last}；最低 {low}（第 {low_step} 步），"
        "最高 {high}（第 {high_step} 步）。"
    ),
    "{label}: {value} at step {step}.": "{label}：第 {step} 步 {value}。",
    "highest {high} at step {high_step}, lowest {low} at step {low_step}": (
        "最高 {high}（第 {high_step} 步），最低 {low}（第 {low_step} 步）"
    ),
    "{value} at every step": "各步均为 {value}",
    "last step: {value}": "最后一步：{value}",
    "step {step}: {value}": "第 {step} 步：{value}",
    "Step": "步",
    "Value": "值",
    "Numbers": "数值",
    "{count} of its points": "其中 {count} 个点",
    "A point is the mean of {count} steps.": "每个点是 {count} 步的平均值。",
    (
        "The charts are not drawn, because plotly.min.js is not next to this page. Their numbers are in the "
        "tables."
    ): "图表未能绘制，因为 plotly.min.js 不在本页所在目录。数值见各表。",
    "tokens sampled": "已采样 token 数",
    "time": "时间",
    "hours": "小时",
    "minutes": "分钟",
    "seconds": "秒",
    "lower edge": "下界",
    "upper edge": "上界",
    "{chart}: tools": "{chart}：工具",
    "Log": "对数",
    "Log y axis": "y 轴取对数",
    "Logarithmic y axis; values of 0 and below are left out": "y 轴取对数；不显示小于等于 0 的值",
    "Zoom in": "放大",
    "Zoom out": "缩小",
    "Reset": "复位",
    "Reset the zoom": "恢复缩放",
    "Download as PNG": "下载为 PNG",
    "Download the numbers as CSV": "把数值下载为 CSV",
    "Show or hide this line": "显示或隐藏这条线",
    "off": "关",
    "{strength} for lines of {count} points or more": "{strength}（仅 {count} 个点以上的曲线）",
    "Drag to zoom, double-click to return; with the keyboard: ← → read, + − zoom, 0 returns.": (
        "拖动放大，双击还原；键盘：← → 读数，+ − 缩放，0 还原。"
    ),
    "x axis": "x 轴",
    "Smoothing": "平滑",
    # training
    "One point per GRPO step.": "每个 GRPO 步一个点。",
    "Each point is the mean of {count} neighbouring steps; every step is in metrics.jsonl of grpo.": (
        "每个点是相邻 {count} 步的平均值；逐步数据见 grpo 的 metrics.jsonl。"
    ),
    "With smoothing, the strong line is the moving average and the faint one what was measured.": (
        "开启平滑时，粗线为滑动平均，细线为实测值。"
    ),
    "No GRPO step was recorded.": "没有记录到 GRPO 步。",
    "How GRPO ended": "GRPO 的结束状态",
    "{file} of {stage}": "{stage} 的 {file}",
    "{file} of {stage}; final_reward is the reward of the last step": (
        "{stage} 的 {file}；final_reward 为最后一步的奖励"
    ),
    "Supervised warm-up": "监督预热",
    "What the model learned from worked answers before GRPO.": "模型在 GRPO 之前从带步骤的答案中学习。",
    "No supervised warm-up was recorded: it was off, or it left no metrics.": (
        "没有监督预热的记录：未启用，或没有留下指标。"
    ),
    "How the warm-up ended": "预热的结束状态",
    # completions
    "Completions while training": "训练中的回答",
    "Groups of one prompt with all their completions, as sampled.": "每组为一个提示词及其全部采样回答。",
    (
        "{shown} of {logged} logged steps are in this page, at equal distances; all are in completions.jsonl "
        "of grpo."
    ): "本页等间隔地包含已记录的 {logged} 步中的 {shown} 步；全部内容见 grpo 的 completions.jsonl。",
    "All {logged} logged steps are in this page.": "本页包含全部 {logged} 个已记录的步。",
    (
        "The background says how high the reward is among those shown; the framed number is the final answer "
        "as the reward function number reads it."
    ): "背景色表示奖励在所显示回答中的高低；加框的数是奖励函数 number 读取的最终答案。",
    "Counts are of these completions: a step logs only its first groups (train.logged_completions).": (
        "计数只针对这些回答：每步只记录前几组（train.logged_completions）。"
    ),
    "The reward is {formula}.": "奖励 = {formula}。",
    "Group {number} of the last step": "最后一步的第 {number} 组",
    "This is a group of the last step; allow scripts to read the others.": (
        "这是最后一步中的一组；允许脚本运行后可以阅读其余各组。"
    ),
    "No completion of a training step was recorded, or report.samples=0 leaves them out.": (
        "没有记录训练步的回答，或 report.samples=0 将其省略。"
    ),
    "Completions before and after": "训练前后的回答",
    "Held-out prompts, answered greedily by both models: the {count} recorded.": (
        "训练前后两个模型对留出集提示词的贪心回答：共记录 {count} 个。"
    ),
    (
        "Held-out prompts, answered greedily by both models: {shown} of the {count} recorded, first those "
        "that training fixed or broke."
    ): (
        "训练前后两个模型对留出集提示词的贪心回答：显示已记录的 {count} 个中的 {shown} 个，优先显示改对和"
        "改错的。"
    ),
    "Of all recorded: {counts}.": "全部已记录的提示词：{counts}。",
    "Of all {count} held-out prompts: {counts}.": "全部 {count} 个留出集提示词：{counts}。",
    "Prompt {number}": "提示词 {number}",
    "Prompt": "提示词",
    "Solution": "标准答案",
    "Before": "之前",
    "After": "之后",
    "No sample completions were recorded.": "没有记录样例回答。",
    "the final answer, as the reward function number reads it": "最终答案（按奖励函数 number 的读法）",
    "Which completions": "选择回答",
    "All": "全部",
    "Right": "正确",
    "Wrong": "错误",
    "Cut": "截断",
    "right": "正确",
    "wrong": "错误",
    "cut": "被截断",
    "Longest first": "最长在前",
    "Logged step with the longest on average": "已记录步中平均最长的一步",
    "a value per point": "每个组合各有一个值",
    "None explains more than chance.": "没有哪个键的解释超过偶然。",
    " (weight {weight})": "（权重 {weight}）",
    "advantage": "优势",
    "{count} tokens": "{count} 个 token",
    "Completion {number}": "回答 {number}",
    "step {number}": "第 {number} 步",
    "{count} more did not fit.": "另有 {count} 个未能放入本页。",
    "In all steps here: {count}.": "本页所有步中共 {count} 个。",
    "{shown} of {count} completions of step {step}, in one group.": (
        "第 {step} 步的 {count} 个回答中的 {shown} 个，共一组。"
    ),
    "{shown} of {count} completions of step {step}, in {groups} groups.": (
        "第 {step} 步的 {count} 个回答中的 {shown} 个，共 {groups} 组。"
    ),
    "{right} of {count} right": "{count} 个中 {right} 个正确",
    "{count} completions": "{count} 个回答",
    "Group {number}": "第 {number} 组",
    "No completion of this step fits; the arrows go to the next step with one.": (
        "这一步没有符合条件的回答；用箭头转到下一个有符合条件回答的步。"
    ),
    "Previous step with a match": "上一个符合条件的步",
    "Next step with a match": "下一个符合条件的步",
    "Search prompts and completions": "搜索提示词和回答",
    "Which prompts": "选择提示词",
    "Show more": "显示更多",
    "{shown} of {count} prompts": "{count} 个提示词中的 {shown} 个",
    "{right} of {count} samples right": "{count} 个采样中 {right} 个正确",
    "Search prompts and answers": "搜索提示词和回答",
    # stages and time
    "Stages; reward, accuracy and speed are those of the last step": (
        "各阶段；奖励、准确率和速度为最后一步的值"
    ),
    (
        "A line leads from a stage to one that reads its artifact. Built: this run made it; cached: it was "
        "in the store."
    ): "连线从一个阶段指向读取其产物的阶段。本次生成：由本次运行产生；缓存：存储中已有。",
    "Graph of {count} stages.": "{count} 个阶段的图。",
    "{stage} reads {names}": "{stage} 读取 {names}",
    "Log of {stage}": "{stage} 的日志",
    "log": "日志",
    "{seconds} in which a stage of this run ran; waiting does not count.": (
        "本次运行的各阶段共运行 {seconds}，不计等待时间。"
    ),
    "All stages together took {seconds}.": "所有阶段共用时 {seconds}。",
    (
        "{count} stage(s) came from the store: they were finished before this run began, and their bars are "
        "hollow."
    ): "{count} 个阶段来自存储：在本次运行开始前已完成，以空心条表示。",
    "Stages in the order in which they started": "各阶段按开始时间排列",
    "a pause of {seconds} is cut out at {place} %": "在 {place} % 处略去 {seconds} 的间隔",
    "Stage": "阶段",
    "Time": "时间",
    "Took": "耗时",
    "Started": "开始时间",
    "Peak memory": "峰值内存",
    "reused": "复用",
    "of each worker": "（各 worker）",
    "No stage left a start and an end.": "没有阶段留下开始和结束时间。",
    "Inside one GRPO step, mean over all steps": "一个 GRPO 步的耗时构成（所有步的平均值）",
    "Rollout": "采样",
    "Reference": "参考策略",
    "Update": "更新",
    "Everything else": "其他",
    # data
    "The data that the model was trained and tested on; tokens before truncation and padding.": (
        "模型训练和测试所用的数据；token 数为截断和填充之前的值。"
    ),
    "Files of tokenize": "tokenize 的文件",
    "File": "文件",
    "Rows read": "读取行数",
    "Rows used": "使用行数",
    "Left out": "剔除",
    "Repeated": "重复",
    "Tokens: median / 95 % / longest": "token 数：中位数 / 95 % / 最大",
    "No data card was recorded.": "没有记录数据概要。",
    # run, configuration, environment, artifacts
    "This command repeats the run that made this page; stages that are still in the store are reused.": (
        "用以下命令重复本次运行；存储中仍有的阶段直接复用。"
    ),
    "To compare it with other runs:": "与其他运行比较：",
    "Logs:": "日志：",
    "Every value that a stage of this run read, resolved.": "本次运行各阶段读取的全部配置值（已解析）。",
    "Differences from the defaults": "与默认值的差异",
    "{count} values; the defaults are those of a run without any override": (
        "{count} 项；默认值指不带任何覆盖项的运行的值"
    ),
    "Key": "配置项",
    "This run": "本次运行",
    "Default": "默认值",
    "Further values": "其余各项",
    "Nothing.": "无。",
    "All values, defaults and nulls too": "全部值，包括默认值和空值",
    "read by {stages}": "由 {stages} 读取",
    "top-level keys": "顶层配置项",
    "No stage recorded its config.": "没有阶段记录其配置。",
    "Hosts, versions and commits of the stages.": "各阶段的主机、版本和提交。",
    "From the manifests; where stages differ, each value with its stages": (
        "取自各 manifest；各阶段不同时，逐值列出所属阶段"
    ),
    "No stage recorded its environment.": "没有阶段记录其环境。",
    "The files that each stage wrote to the store.": "各阶段写入存储的文件。",
    "The first 16 digits of the fingerprint name the directory": "目录名为指纹的前 16 位",
    "Fingerprint": "指纹",
    "Made from": "来自",
    "Files": "文件",
    "Size": "大小",
    "the first {shown} of {count}": "{count} 个中的前 {shown} 个",
    "The report got no artifacts.": "报告没有可用的产物。",
    "Missing from this report": "本报告缺少的内容",
    "{file}: not part of this run.": "{file}：不属于本次运行。",
    "{file}: {count} broken line(s) left out.": "{file}：略去 {count} 个损坏的行。",
    "{file}: empty.": "{file}：为空。",
    "{file}: contains no JSON object.": "{file}：不含 JSON 对象。",
    "{file}: only its last {size} MiB were read.": "{file}：只读取了最后 {size} MiB。",
    "{file}: not there.": "{file}：不存在。",
    "{file}: could not be read ({error}).": "{file}：无法读取（{error}）。",
    "Copy": "复制",
    "Copied": "已复制",
    "Selected": "已选中",
    "Pause": "暂停",
    # comparison of runs
    "Comparison of {count} runs": "{count} 次运行的比较",
    "Comparison of GRPO runs": "GRPO 运行比较",
    "{count} runs": "{count} 次运行",
    "What differs": "差异",
    "What may explain it": "可能的原因",
    "nothing to explain: within noise": "无需解释：差异在误差范围内",
    "unknown: it has no metrics": "未知：没有指标",
    "more of its completions are cut": "更多回答被截断",
    "more of its groups give no gradient": "更多的组没有梯度",
    "its sampling no longer explores (entropy)": "采样不再探索（熵）",
    "it left the start (KL) and earned less": "偏离了起点（KL），奖励却更低",
    "its reward stayed lower, and nothing else stands out": "奖励一直较低，其余指标无明显差别",
    "its reward is as high as the best point's: training does not explain it": (
        "奖励与最佳组合相当：训练过程不能解释"
    ),
    "Results": "结果",
    "Curves": "曲线",
    "Commands": "命令",
    "Only one value differs.": "只有一个配置项不同。",
    "The {count} values that differ.": "共 {count} 个配置项不同。",
    "Complete configurations: the report of each run": "完整配置见各运行的报告",
    "Further values, in the same order of runs": "其余各项，运行的顺序相同",
    "The configurations are equal.": "配置相同。",
    "Accuracies on held-out prompts.": "留出集上的准确率。",
    (
        "Against the best: the difference of the greedy accuracies after GRPO in percentage points, ± half "
        "of its 95 % interval for two independent samples of prompts (Agresti and Caffo 2000); the "
        "intervals of several runs hold at once (Bonferroni). Within noise: the interval contains 0. For "
        "runs that answer the same prompts the true intervals are narrower."
    ): (
        "与最佳比较：GRPO 之后贪心准确率之差（百分点），± 为 95 % 区间宽度的一半，按两组独立的提示词样本计算"
        "（Agresti 与 Caffo 2000）；多次运行的区间同时成立（Bonferroni 校正）。在误差范围内：区间包含 0。各运"
        "行回答相同的提示词时，真实的区间更窄。"
    ),
    "★ the highest of its column": "★ 该列的最大值",
    "lower": "较低",
    "Click on a heading to sort.": "点击表头排序。",
    "The gain in percentage points, further measures after GRPO": "提升以百分点计；其余为 GRPO 之后的指标",
    "State": "状态",
    (
        "Training of all runs; with smoothing as moving averages. A run has the same line in all charts; its "
        "name hides and shows it in all of them."
    ): (
        "全部运行的训练曲线；开启平滑时为滑动平均。同一运行在各图中线型相同；点击名称可在各图中同时隐藏或"
        "显示。"
    ),
    "No run has recorded a GRPO step.": "没有运行记录到 GRPO 步。",
    "Greedy, before GRPO": "贪心，GRPO 之前",
    "Greedy, after": "贪心，之后",
    "Filter: words of a row": "筛选：行中的词",
    "Previous": "上一页",
    "Next": "下一页",
    "{first} to {last} of {count}": "第 {first} 至 {last} 行，共 {count} 行",
    "no row has these words": "没有包含这些词的行",
    # sweeps
    "Sweep {id} – {count} points": "参数扫描 {id} – {count} 个组合",
    "GRPO sweep": "GRPO 参数扫描",
    "One point": "一个组合",
    "{count} points": "{count} 个组合",
    "Best point": "最佳组合",
    "Best: point {number}": "最佳：组合 {number}",
    "best": "最佳",
    "Points": "全部组合",
    "Point": "组合",
    "Without a result": "无结果",
    "Against the best": "与最佳比较",
    "Importance": "重要性",
    "Command": "命令",
    "Time of its stages": "各阶段耗时",
    (
        "Its lead is within noise: the accuracies of {count} of the {others} other points cannot be told "
        "apart from it with {prompts} prompts (intervals of 95 %; the table marks these points)."
    ): (
        "领先幅度在误差范围内：其他 {others} 个组合中有 {count} 个的准确率用 {prompts} 个提示词无法与它区"
        "分（95 % 区间；表中已标出）。"
    ),
    (
        "Highest greedy accuracy after GRPO. It was chosen on the prompts that measure it, so expect a "
        "little less on new ones. This command repeats it:"
    ): "GRPO 之后贪心准确率最高。它是用同一批提示词选出的，在新的提示词上会略低。用以下命令重复：",
    "No point has a result yet.": "还没有组合得到结果。",
    "The values that differ between points, and their results; the best first.": (
        "各组合之间不同的配置值及其结果，最佳在前。"
    ),
    "Shared stages ran once: {total} of stages in all, {saved} more if each point had run alone.": (
        "共用的阶段只运行一次：各阶段共 {total}；若每个组合单独运行，还要多用 {saved}。"
    ),
    "Held out; the gain in percentage points, further measures after GRPO": (
        "留出集；提升以百分点计；其余为 GRPO 之后的指标"
    ),
    "Points without a result": "没有结果的组合",
    (
        "Invalid points were left out before anything ran. The same command continues with failed and "
        "pending ones."
    ): "无效的组合在运行之前已被排除。用同一命令可继续运行失败和待运行的组合。",
    (
        "Points that were stopped early were not among the best when others had trained as long; the sweep "
        "leaves them so, and the command in their row trains one to the end."
    ): "提前停止的组合在训练到相同步数时不在前列，再次执行扫描也不会继续训练；用其所在行的命令可将其训练完。",
    "rung {number}, after step {step}: accuracy {accuracy}, {needed} needed ({compared} trainings)": (
        "第 {number} 轮筛选（第 {step} 步之后）：准确率 {accuracy}，需达到 {needed}（共 {compared} 个训练）"
    ),
    "Why": "原因",
    "Reason": "原因",
    (
        "Why a point lost: what it has other than the best point, and how its training ended, as means over "
        "the last tenth of its steps. Small figures are differences from the best. What may explain it is a "
        "hint from these figures, not a proof."
    ): (
        "一个组合为何落后：它与最佳组合的配置差异，以及训练结束时的状态（最后十分之一步的平均值）。浅色数"
        "字为与最佳组合之差。“可能的原因”是由这些数得出的提示，并非证明。"
    ),
    (
        "An entropy near zero: sampling no longer explores. Groups without signal have equal rewards and "
        "give no gradient. Cut completions reached the token limit. A low reward with a high KL: the model "
        "left its start without learning."
    ): (
        "熵接近零：采样不再探索。无信号的组：组内奖励相等，不产生梯度。被截断的回答：达到了 token 上限。"
        "奖励低而 KL 高：模型偏离了起点却没有学到东西。"
    ),
    "{measure}, last tenth": "{measure}（最后十分之一）",
    "last tenth: mean over the last tenth of the steps": "最后十分之一：最后十分之一步的平均值",
    "fixed and broken: held-out prompts whose greedy answer training made right or wrong": (
        "改对和改错：贪心回答因训练而变对或变错的留出集提示词数"
    ),
    "Groups without signal": "无信号的组",
    "Cut completions": "被截断的回答",
    "These are the {count} points with the highest accuracies.": "这里是准确率最高的 {count} 个组合。",
    "Importance of keys": "配置项的重要性",
    "Which keys explain the greedy accuracy after GRPO of the {count} finished points.": (
        "哪些配置项可以解释 {count} 个已完成组合在 GRPO 之后的贪心准确率。"
    ),
    (
        "Their differences are within noise: points of equal accuracy would differ as much when measured (χ² "
        "test at 5 %), so the shares below explain chance."
    ): (
        "它们的差异在误差范围内：准确率相同的组合测出的差异也会这么大（5 % 水平的 χ² 检验），因此以下比例"
        "只反映偶然性。"
    ),
    "Points in parallel coordinates": "各组合的平行坐标图",
    (
        "A line per point: its value of each key, the most important first, and its accuracy, which also "
        "colours it. Values of a key are spaced evenly."
    ): (
        "每个组合一条线：依次为各配置项的值（最重要的在前）和准确率，颜色也表示准确率。同一配置项的各值等"
        "间距排列。"
    ),
    "{shown} of {count} points are drawn, at equal distances in the order of accuracy.": (
        "按准确率顺序等间隔地画出 {count} 个组合中的 {shown} 个。"
    ),
    "Choose values to see the points that have them.": "选择取值可只看相应的组合。",
    "Parallel coordinates of {count} points; the same values are in the table of points": (
        "{count} 个组合的平行坐标图；同样的值见组合表"
    ),
    (
        "η² (eta squared, the squared correlation ratio) = Σ n_g (mean_g − mean)² / Σ (y − mean)²: the share "
        "of the variance of the accuracy y that lies between groups g of points with the same value. By "
        "chance: (groups − 1) / (points − 1), the expectation for a key without influence. Sorted by the "
        "difference."
    ): (
        "η²（相关比的平方）= Σ n_g (mean_g − mean)² / Σ (y − mean)²：取值相同的组合为一组 g，准确率 y 的"
        "方差中位于各组之间的比例。偶然值：(组数 − 1) / (组合数 − 1)，即没有影响的配置项的期望值。按两者"
        "之差排序。"
    ),
    (
        "No key that differs between the points can influence the accuracy: only stages after evaluate read "
        "them."
    ): "各组合之间不同的配置项都不会影响准确率：只有 evaluate 之后的阶段读取它们。",
    "By chance": "偶然值",
    "Mean accuracy of each value": "各取值的平均准确率",
    "Shown as soon as three points have finished and their accuracies differ.": (
        "至少三个组合完成且准确率不同时显示。"
    ),
    "Training of all points in one chart each; the best have a colour, further ones are faint.": (
        "全部组合的训练曲线；最佳的几个有颜色，其余为浅色。"
    ),
    "{count} more are not drawn.": "另有 {count} 个未画出。",
    "No point has recorded a GRPO step.": "没有组合记录到 GRPO 步。",
    "The complete sweep. Run it again to continue with missing points.": (
        "完整的参数扫描命令。再次运行可继续缺少的组合。"
    ),
    "point {number}": "组合 {number}",
    "accuracy after": "之后的准确率",
    "any": "任意",
    "{shown} of {count} points": "{count} 个组合中的 {shown} 个",
    "{shown} of {count} points, accuracy {low} to {high}": (
        "{count} 个组合中的 {shown} 个，准确率 {low} 至 {high}"
    ),
    "These are the first {shown} of {count}; allow scripts to see the others. All are in:": (
        "这是 {count} 行中的前 {shown} 行；允许脚本运行后可查看其余各行。全部内容见："
    ),
    # list of runs
    "Runs": "运行",
    "Pages": "页面",
    "Sweeps": "参数扫描",
    "Filter": "筛选",
    "id, name, state, override": "编号、名称、状态、覆盖项",
    "Sort by": "排序",
    "start": "开始时间",
    "duration": "耗时",
    "accuracy before": "之前的准确率",
    "id": "编号",
    (
        "Each run links to its report, which is live while the run continues. A name or a pin keeps a run "
        "from grpoflow gc."
    ): "每次运行链接到其报告，运行期间报告实时更新。有名称或已保留的运行不会被 grpoflow gc 清理。",
    "Differing overrides": "不同的覆盖项",
    "Compare {run}": "选择 {run} 进行比较",
    "Compare {count} runs": "比较 {count} 次运行",
    "at most {count} runs can be compared": "最多比较 {count} 次运行",
    "choose another run to compare": "再选择一次运行进行比较",
    "pinned": "已保留",
    "Pin": "保留",
    "Pin {run}": "保留 {run}",
    "Unpin": "取消保留",
    "Unpin {run}": "取消保留 {run}",
    "after GRPO": "GRPO 之后",
    "Name": "命名",
    "Rename": "改名",
    "Name {run}": "为 {run} 命名",
    "Name of {run}: Enter saves it, Escape keeps the old one": "{run} 的名称：回车保存，Esc 取消",
    "Save": "保存",
    "not changed: grpoflow ui has ended": "未更改：grpoflow ui 已结束",
    "not refreshed: grpoflow ui has ended": "未刷新：grpoflow ui 已结束",
    "No run matches the filter.": "没有符合筛选条件的运行。",
    "No run yet. Start one:": "还没有运行。用以下命令开始：",
    "Written after each batch of points": "每批组合完成后写入",
    "Sweep": "参数扫描",
    "Finished": "已完成",
    "Best after GRPO": "GRPO 之后最佳",
    "Written": "写入时间",
    "Overrides": "覆盖项",
    "No sweep yet.": "还没有参数扫描。",
}
"""English text of a page -> its Chinese."""
