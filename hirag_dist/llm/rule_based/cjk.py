"""Names and terms in scripts without spaces or capitals: strings of characters that recur in changing company."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from hirag_dist.llm.rule_based.gazetteer import CHINESE_SURNAMES, PLACES
from hirag_dist.llm.rule_based.language import HAN_RUN, KANA
from hirag_dist.llm.rule_based.names import NameOccurrence
from hirag_dist.llm.rule_based.word_lists import word_set

_STOP_CHARS = frozenset(
    "的了是在我你他她它们这那不也就都而及与和着或一个没有之其以为于乎者矣焉哉何此又被把将让给对从到向去来上下里外中前后时说道曰看见想要会能可"
    "得地很更最太还再只且但却因所如若虽然后便即已经曾正才刚等些么吗呢吧啊呀哦嗯叫做使令由自至每各该某几多少好大小两三四五六七八九十百千万年月日"
    "出起过回进开成用无非问答听吃打拿走跑坐站住请教忙急笑怒喝骂望怎甚谁您咱俺汝吾尔朕吓却原有几声个位只条件次遍番般样点头身手心边面处间今昨明早晚"
)
_ORDINARY = word_set(
    "准备 相信 选择 比较 往往 讨厌 高兴 困难 事情 工作 主意 参加 感谢 介绍 挑选 攻击 彻底 杀掉 思考 转变 投奔",
    "干活 带兵 告发 名字 别人 人家 老实 欢喜 左右 奉旨 领众 烦恼 生命 眼睛 问题 时候 地方 东西 办法 原因 结果",
    "情况 关系 方面 部分 作用 影响 发展 进行 提供 需要 应该 必须 可能 能够 开始 继续 成为 作为 认为 觉得 知道",
    "发现 出现 发生 存在 产生 提高 增加 减少 改变 决定 支持 反对 同意 希望 喜欢 害怕 担心 努力 重要 主要 一般",
    "特别 非常 十分 完全 根本 其实 终于 突然 忽然 立刻 马上 永远 似乎 好像 不禁 连忙 纷纷 渐渐 仿佛 究竟 毕竟",
    "当然 自然 果然 居然 竟然 甚至 尤其 至于 关于 由于 根据 按照 通过 经过 随着 除了 包括 例如 比如 另外 此外",
    "同时 以及 并且 而且 不过 可是 只是 就是 还是 或者 要么 否则 虽说 即使 哪怕 相邻 恕罪 启奏 养马 倒挂 降妖",
    "斩妖 搅乱 败阵 遮闭 修行 口传 放心 安心 容易 简单 复杂 清楚 明白 理解 解释 表示 表现 显示 说明 指出 提出",
    "采取 失去 得到 获得 取得 达到 实现 完成 建立 形成 造成 引起 导致 属于 位于 等于 日子 机会 条件 方法 方式",
    "过程 目的 意思 意义 精神 心里 心中 脸上 今天 明天 昨天 现在 以后 以前 当时 后来 最后 最终 首先 其次 第一",
    "第二 一起 一直 一样 一切 一定 所有 许多 很多 不少 各种 各位 大家 自己 人们 我们",
)
_PLACE_ENDS = "山洞寺城县省府州河江海国宫殿观市区村镇庙湖岛街路"
_PERSON_ENDS = "王帝公君师祖佛仙真人僧"
_SPEAKING = re.compile("^[^，。]{0,2}(?:道|曰|说|笑|问|答|言|听|见|闻|喝|叫)")
_KANJI_KATA = re.compile("[\u30a0-\u30ff]{3,}|[々\u4e00-\u9fff]{2,6}")
_LATIN = re.compile(r"[A-Za-z][A-Za-z0-9\-]{2,}(?: [A-Z][A-Za-z0-9\-]+)*")


def find_unspaced(sentences: Sequence[str]) -> list[NameOccurrence]:
    """Return the recurring names and terms of a text in Chinese, Japanese or another unspaced script."""
    text = "".join(sentences[:400])
    if KANA.search(text) and len(KANA.findall(text)) * 8 > len(text):
        counts = Counter(word for sentence in sentences for word in _KANJI_KATA.findall(sentence))
    else:
        counts = _chinese(sentences)
    counts.update(word for sentence in sentences for word in _LATIN.findall(sentence))
    usable = [name for name in counts if name not in _ORDINARY and (counts[name] > 1 or name in PLACES)]
    names = sorted(usable, key=lambda name: (-counts[name], name))
    return _placed(names[:120], sentences)


def _chinese(sentences: Sequence[str]) -> Counter[str]:
    runs = [run for sentence in sentences for run in HAN_RUN.findall(sentence)]
    counts: Counter[str] = Counter()
    for run in runs:
        for size in (2, 3, 4):
            counts.update([run[at : at + size] for at in range(len(run) - size + 1)])
    likely = {
        gram: count
        for gram, count in counts.items()
        if count > 1 and gram[0] not in _STOP_CHARS and gram[-1] not in _STOP_CHARS
    }
    left: dict[str, Counter[str]] = {gram: Counter() for gram in likely}
    right: dict[str, Counter[str]] = {gram: Counter() for gram in likely}
    for run in runs:
        padded = f"\n{run}\n"
        for size in (2, 3, 4):
            for at in range(1, len(padded) - size):
                gram = padded[at : at + size]
                if gram in likely:
                    left[gram][padded[at - 1]] += 1
                    right[gram][padded[at + size]] += 1
    kept: Counter[str] = Counter()
    for gram, count in likely.items():
        if _free(left[gram], count) and _free(right[gram], count):
            kept[gram] = count
    for gram in sorted(kept, key=len, reverse=True):  # 孙悟 is nothing where it is always 孙悟空
        for size in range(2, len(gram)):
            for at in range(len(gram) - size + 1):
                part = gram[at : at + size]
                if part in kept and kept[part] <= kept[gram] * 1.3:
                    del kept[part]
    return kept


def _free(beside: Counter[str], count: int) -> bool:
    """Whether what stands beside a string changes: no one neighbour is there nearly always."""
    edge = beside.pop("\n", 0)
    if edge >= 2 or (edge and count <= 3):
        return True
    most = max(beside.values(), default=0)
    return len(beside) + min(edge, 1) > 1 and most <= 0.7 * count


def _placed(names: Sequence[str], sentences: Sequence[str]) -> list[NameOccurrence]:
    found = []
    for name in names:
        places = []
        speaking = 0
        for number, sentence in enumerate(sentences):
            at = sentence.find(name)
            if at >= 0:
                places.append((number, at // 2))
                speaking += bool(_SPEAKING.match(sentence[at + len(name) : at + len(name) + 4]))
        if not places:
            continue
        kind = _kind(name, speaking, len(places))
        size = (0.0, 0.5, 1.0, 1.5, 1.6)[min(len(name), 4)]
        score = len(places) * size * (1.5 if kind != "concept" else 1.0)
        found.append(NameOccurrence(name, kind, places, score))
    return found


def _kind(name: str, speaking: int, count: int) -> str:
    if name in PLACES or (name[-1] in _PLACE_ENDS and name != "政府"):
        return "location"
    if speaking * 4 >= count and speaking:
        return "person"
    if (name[0] in CHINESE_SURNAMES and len(name) == 3) or (name[-1] in _PERSON_ENDS and len(name) > 1):
        return "person"
    return "concept"
