"""Policies as one file of C99 that needs nothing but `math.h`.

The file has a function for each operation that the network uses, the parameters as constant arrays,
and three functions with the file's name in front: `_outputs`, `_act`, and `_check`, which compares
with what this library computed. With `POLICY_MAIN` defined it is a program of its own.

A program's `head` (`rlcpu.nn.network.heads.Head`) makes actions of `size` outputs: of each group of
them, whose sizes `choices` has, the index of the largest; without choices, actions are real
numbers. `is_list` tells whether an action is several numbers.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator

from rlcpu.nn.export.program import Array, ExportedPolicy, Statement, shortest, sizes_of
from rlcpu.nn.layers.norm import NORM_EPSILON

#: Numbers between layers that a function keeps on the stack: 16 KB. Beyond, they are static.
ON_STACK = 4096

#: Defined in front of each function that uses it: C allows to repeat the same.
_SIGMOID = "#define SIGMOID(x) (1 / (1 + expf(-(x))))\n"
_EACH = """\
static void {name}(const float *x, float *y, int size)
{{
    int k;
    for (k = 0; k < size; k++) y[k] = {formula};
}}
"""
#: Functions of operations; all write `size` numbers y, and none writes what another one has read.
FUNCTIONS = {
    "add": """\
static void add(const float *x, const float *other, float *y, int size)
{
    int k;
    for (k = 0; k < size; k++) y[k] = x[k] + other[k];
}
""",
    "channels_last": """\
static void channels_last(const float *x, int channels, float *y, int size)
{
    int k, c, pixels = size / channels;
    for (k = 0; k < pixels; k++)
        for (c = 0; c < channels; c++) y[k * channels + c] = x[c * pixels + k];
}
""",
    "concatenate": """\
static float *append(const float *x, float *y, int size)
{
    int k;
    for (k = 0; k < size; k++) y[k] = x[k];
    return y + size;
}
""",
    "convolution": """\
static void convolution(const float *x, int height, int width, int channels, int window, int stride,
                        int padding, const float *weights, const float *biases, float *y, int size)
{
    int tall = (height + 2 * padding - window) / stride + 1;
    int wide = (width + 2 * padding - window) / stride + 1;
    int made = size / (tall * wide), pixel, row, column, c, k;
    for (pixel = 0; pixel < tall * wide; pixel++) {
        float *RESTRICT out = y + pixel * made;
        int top = pixel / wide * stride - padding, left = pixel % wide * stride - padding;
        for (k = 0; k < made; k++) out[k] = biases[k];
        for (row = 0; row < window; row++)
            for (column = 0; column < window; column++) {
                int i = top + row, j = left + column;
                if (i < 0 || i >= height || j < 0 || j >= width) continue;
                for (c = 0; c < channels; c++) {
                    const float *w = weights + ((row * window + column) * channels + c) * made;
                    float number = x[(i * width + j) * channels + c];
                    for (k = 0; k < made; k++) out[k] += number * w[k];
                }
            }
    }
}
""",
    "dense": """\
static void dense(const float *x, int inputs, const float *weights, const float *biases,
                  float *RESTRICT y, int size)
{
    int i, k;
    for (k = 0; k < size; k++) y[k] = biases[k];
    for (i = 0; i < inputs; i++)
        for (k = 0; k < size; k++) y[k] += x[i] * weights[i * size + k];
}
""",
    "dueling": """\
static void dueling(const float *x, int streams, float *y, int size)
{
    int k;
    for (k = 0; k < size; k++) y[k] = x[k];
    for (k = 0; k < streams; k++) {
        float total = 0;
        int i;
        for (i = k; i < size; i += streams) total += x[i];
        for (i = k; i < size; i += streams)
            y[i] += x[size + k] - total * (float)streams / (float)size;
    }
}
""",
    "elu": _EACH.format(name="elu", formula="x[k] < 0 ? expf(x[k]) - 1 : x[k]"),
    "embedding": """\
static void embedding(const float *x, int inputs, int choices, const float *weights, float *y,
                      int size)
{
    int i, k;
    for (k = 0; k < size; k++) y[k] = 0;
    for (i = 0; i < inputs; i++) {
        int row = i * choices + (x[i] >= 0 && x[i] < (float)choices ? (int)x[i] : 0);
        float zero = x[i] - x[i]; /* or NaN */
        for (k = 0; k < size; k++) y[k] += weights[row * size + k] + zero;
    }
}
""",
    "gru": _SIGMOID
    + """\
static void gru(const float *x, const float *weights, const float *biases, float *h, float *y,
                int size)
{
    int i, k;
    for (k = 0; k < size; k++) {
        float r = biases[k], z = biases[size + k], n = biases[2 * size + k];
        for (i = 0; i < size; i++) {
            const float *w = weights + i * 3 * size + k;
            r += h[i] * w[0];
            z += h[i] * w[size];
            n += h[i] * w[2 * size];
        }
        r = SIGMOID(x[k] + r);
        z = SIGMOID(x[size + k] + z);
        n = tanhf(x[2 * size + k] + r * n);
        y[k] = n + z * (h[k] - n);
    }
    for (k = 0; k < size; k++) h[k] = y[k];
}
""",
    "layer_norm": """\
static void layer_norm(const float *x, int group, const float *gains, const float *shifts, float *y,
                       int size)
{
    int k;
    for (; size > 0; size -= group, x += group, y += group) {
        float average = 0, variance = 0;
        for (k = 0; k < group; k++) average += x[k];
        average /= (float)group;
        for (k = 0; k < group; k++) variance += (x[k] - average) * (x[k] - average);
        variance = variance / (float)group + EPSILONf;
        for (k = 0; k < group; k++)
            y[k] = (x[k] - average) / sqrtf(variance) * gains[k] + shifts[k];
    }
}
""".replace("EPSILON", str(NORM_EPSILON)),
    "lstm": _SIGMOID
    + """\
static void lstm(const float *x, const float *weights, float *h, float *y, int size)
{
    float *c = h + size;
    int j, k;
    for (k = 0; k < size; k++) {
        float i = x[k], f = x[size + k], g = x[2 * size + k], o = x[3 * size + k];
        for (j = 0; j < size; j++) {
            const float *w = weights + j * 4 * size + k;
            i += h[j] * w[0];
            f += h[j] * w[size];
            g += h[j] * w[2 * size];
            o += h[j] * w[3 * size];
        }
        c[k] = SIGMOID(f) * c[k] + SIGMOID(i) * tanhf(g);
        y[k] = SIGMOID(o) * tanhf(c[k]);
    }
    for (k = 0; k < size; k++) h[k] = y[k];
}
""",
    "max_pool": """\
static void max_pool(const float *x, int height, int width, int channels, int window, int stride,
                     int padding, float *y, int size)
{
    int wide = (width + 2 * padding - window) / stride + 1, pixel, row, column, c;
    for (pixel = 0; pixel < size / channels; pixel++) {
        float *out = y + pixel * channels;
        int top = pixel / wide * stride - padding, left = pixel % wide * stride - padding;
        for (c = 0; c < channels; c++) out[c] = -INFINITY;
        for (row = 0; row < window; row++)
            for (column = 0; column < window; column++) {
                int i = top + row, j = left + column;
                if (i < 0 || i >= height || j < 0 || j >= width) continue;
                for (c = 0; c < channels; c++) {
                    float number = x[(i * width + j) * channels + c];
                    if (number > out[c] || number != number) out[c] = number;
                }
            }
    }
}
""",
    "means": """\
static void means(const float *x, int count, float *y, int size)
{
    int i, k;
    for (k = 0; k < size; k++) {
        y[k] = 0;
        for (i = 0; i < count; i++) y[k] += x[k * count + i];
        y[k] /= (float)count;
    }
}
""",
    "min_gru": _SIGMOID
    + """\
static void min_gru(const float *x, float *h, float *y, int size)
{
    int k;
    for (k = 0; k < size; k++) {
        h[k] += SIGMOID(x[k]) * (x[size + k] - h[k]);
        y[k] = h[k];
    }
}
""",
    "relu": _EACH.format(name="relu", formula="x[k] < 0 ? 0 : x[k]"),
    "silu": _EACH.format(name="silu", formula="x[k] / (1 + expf(-x[k]))"),
    "tanh": _EACH.format(name="hyperbolic", formula="tanhf(x[k])"),
}
#: Functions of what is not a network. `fminf` and `fmaxf` would make a number of NaN.
_CLIP = """\
static float clip(float x, float least, float most)
{
    return x < least ? least : x > most ? most : x;
}
"""
_ONE_HOT = """\
static float one_hot(float choice, int k, int size)
{
    if (!(choice >= 0 && choice < (float)size)) return NAN;
    return (float)(k == (int)choice);
}
"""
_LARGEST = """\
static int largest(const float *x, {mask}int size)
{{
    int k, best = {first};
    for (k = 0; k < size; k++) {{
        if (x[k] != x[k]) return -1;
        if ({condition}x[k] > x[best]{after}) best = k;
    }}
    return {result};
}}
"""
_FILE = """\
/* {title}.

   {signature}
       {act_does}
   void {name}_outputs(const float *observation, {state_parameter}float *outputs);
       writes the {num_outputs} numbers from which actions follow.
   float {name}_check(void);
       returns how far outputs are from those that rlcpu computed, relative to numbers above 1:
       at most about 1e-6.

   An observation has {observation_is}; it is normalised here.{state_note}
   {nan_note}{notes}

   Compile this file together with yours, or with -DPOLICY_MAIN alone: that program reads
   observations and prints actions.{line_note}
   With the argument --check it prints {name}_check() and fails above 1e-4.
   C99 or C++; link with -lm. */
#include <math.h>

#ifdef __cplusplus
#define RESTRICT __restrict
extern "C" {{
#else
#define RESTRICT restrict
#endif
void {name}_outputs(const float *observation, {state_parameter}float *outputs);
{signature}
float {name}_check(void);
#ifdef __cplusplus
}}
#endif

{arrays}
{functions}
void {name}_outputs(const float *observation, {state_parameter}float *outputs)
{{
    {storage}float {declare_values};
    int k;
{write_inputs}
{call_operations}
    for (k = 0; k < {num_outputs}; k++) outputs[k] = v{last_value}[k];
}}

{act_function}

float {name}_check(void)
{{
    static const float probe[] = {probe};
    static const float expected[] = {expected};
    float outputs[{num_outputs}], worst = 0;{declare_state}
    int i, k;
    for (i = 0; i < {num_probes}; i++) {{
        const float *right = expected + i * {num_outputs};
        {name}_outputs(probe + i * {observation_size}, {state_argument}outputs);
        for (k = 0; k < {num_outputs}; k++) {{
            float difference = fabsf(outputs[k] - right[k]) / fmaxf(1, fabsf(right[k]));
            if (difference > worst || difference != difference) worst = difference;
        }}
    }}
    return worst;
}}

#ifdef POLICY_MAIN
#include <stdio.h>
#include <string.h>

int main(int count, char **words)
{{
    static float observation[{observation_size}];{declare_state}{declare_action}
    int k;
    if (count > 1 && strcmp(words[1], "--check") == 0) {{
        float worst = {name}_check();
        printf("%g\\n", (double)worst);
        return !(worst <= 1e-4f);
    }}
    for (;;) {{{read_start}
        for (k = 0; k < {observation_size}; k++)
            if (scanf("%f", &observation[k]) != 1) return 0;{read_mask}
        {print_action}
        printf("\\n");
    }}
}}
#endif
"""
_READ_MASK = """
        for (k = 0; k < {num_outputs}; k++) {{
            int one;
            if (scanf("%d", &one) != 1) return 1;
            allowed[k] = (unsigned char)(one != 0);
        }}"""
_READ_START = """
        float begins;
        if (scanf("%f", &begins) != 1) return 0;
        for (k = 0; begins != 0 && k < {size}; k++) state[k] = 0;"""


def as_c(program: ExportedPolicy, name: str) -> bytes:
    """Return the source of a policy.

    Args:
        program: the policy.
        name: begins the names of its functions; what C does not allow in names becomes "_".

    Raises:
        ValueError: C has no function for a layer.
    """
    program.check_operations(FUNCTIONS, "C")
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    name = name if re.match(r"[A-Za-z]", name) else f"policy_{name}"
    head, sizes, state_size = program.head, sizes_of(program), program.state_size
    signature, has_state = _signature(program, name), state_size > 0
    observation_size = max(1, math.prod(program.shape))
    text = _FILE.format(
        **_words_of_main(program, name),
        title=program.title,
        signature=f"{signature};",
        name=name,
        act_does=_describe(program),
        num_outputs=head.size,
        observation_is=_describe_observation(program),
        observation_size=observation_size,
        state_parameter="float *state, " if has_state else "",
        state_argument="state, " if has_state else "",
        declare_state=f"\n    float state[{state_size}] = {{0}};" if has_state else "",
        state_note=_STATE_NOTE.format(size=state_size) if has_state else "",
        nan_note=_describe_nan(program),
        notes=_comment(program.notes),
        line_note=_describe_lines(program),
        arrays="".join(_arrays(program)),
        functions=_functions(program),
        storage="static " if sum(sizes) > ON_STACK else "",
        declare_values=", ".join(f"v{k}[{size}]" for k, size in enumerate(sizes)),
        write_inputs=_inputs(program),
        call_operations="\n".join(f"    {call}" for call in _calls(program)),
        last_value=len(program.statements),
        act_function=_act(program, signature, name),
        num_probes=len(program.probe) if has_state else 1,
        probe=_numbers(program.probe),
        expected=_numbers(program.expected),
    )
    return text.encode()


_STATE_NOTE = """
   The state has {size} numbers, zeros before an episode, which calls read and overwrite."""


def _signature(program: ExportedPolicy, name: str) -> str:
    """Return the head of the function that acts."""
    parameters = "const float *observation"
    parameters += ", float *state" if program.state_size else ""
    parameters += ", const unsigned char *allowed" if program.is_masked else ""
    if not program.head.is_list:
        return f"int {name}_act({parameters})"
    return f"void {name}_act({parameters}, {_number_type(program)} *action)"


def _number_type(program: ExportedPolicy) -> str:
    """Return C's type of a number of an action."""
    return "int" if program.head.choices else "float"


def _words_of_main(program: ExportedPolicy, name: str) -> dict[str, str]:
    """Return what the template's `main` declares, reads and prints, by the template's words."""
    head, size = program.head, program.state_size
    action_size = len(head.choices) or head.size
    declared = f"\n    static unsigned char allowed[{head.size}];" if program.is_masked else ""
    if head.is_list:
        declared += f"\n    {_number_type(program)} action[{action_size}];"
    return {
        "declare_action": declared,
        "read_start": _READ_START.format(size=size) if size else "",
        "read_mask": _READ_MASK.format(num_outputs=head.size) if program.is_masked else "",
        "print_action": _print_action(program, name, action_size),
    }


def _describe_observation(program: ExportedPolicy) -> str:
    """Return what an observation consists of."""
    if not program.shape:
        return f"one number, a choice from 0 to {program.size - 1}"
    return f"{math.prod(program.shape)} numbers"


def _describe_nan(program: ExportedPolicy) -> str:
    """Return what comes of NaN."""
    cause = "NaN in an observation" if program.shape else "NaN, or a number that is no choice,"
    made = "-1" if program.head.choices else "NaN"
    after = ", and stays in the state" if program.state_size else ""
    return f"{cause} makes outputs NaN and actions {made}{after}."


def _comment(text: str) -> str:
    """Return lines of the comment at the top, "" of no text; nothing in them ends the comment."""
    lines = textwrap.wrap(text.replace("*/", "* /"), 96)
    return "".join(f"\n   {line}" for line in lines)


def _describe_lines(program: ExportedPolicy) -> str:
    """Return what stands beside observations that the program reads."""
    notes = []
    if program.state_size:
        notes.append("In front of each it reads 1 where an episode begins, else 0.")
    if program.is_masked:
        notes.append(f"Behind each it reads its mask, {program.head.size} zeros and ones.")
    return "".join(f"\n   {note}" for note in notes)


def _describe(program: ExportedPolicy) -> str:
    """Return what the function that acts does."""
    head, masked = program.head, program.is_masked
    if not head.choices:
        return f"writes an action, {head.size} numbers within their bounds."
    if head.is_list:
        says = f"writes an action, {len(head.choices)} choices"
        return f"{says}, whose numbers in `allowed` are not 0." if masked else f"{says}."
    says = f"returns an action, 0 to {head.size - 1}"
    return f"{says}, whose number in `allowed` is not 0." if masked else f"{says}."


def _arrays(program: ExportedPolicy) -> Iterator[str]:
    """Yield constants."""
    head = program.head
    named = {**program.arrays, "mean": program.mean, "scale": program.scale}
    if not head.choices:
        named |= {name: getattr(head, name) for name in ("center", "half", "low", "high")}
    for name, array in named.items():
        yield f"static const float {_identifier(name)}[{array.size}] = {_numbers(array)};\n"


def _numbers(array: Array) -> str:
    """Return numbers as C has them, the shortest that are read as the same."""
    texts = [f"{x!r}f" for x in shortest(array)]
    lines = [", ".join(texts[k : k + 8]) for k in range(0, len(texts), 8)]
    return "{" + ",\n    ".join(lines) + "}"


def _identifier(name: str) -> str:
    return name.replace(".", "_")


def _inputs(program: ExportedPolicy) -> str:
    """Return lines that make the network's inputs of an observation."""
    number = "observation[k]" if program.shape else f"one_hot(observation[0], k, {program.size})"
    limit = "INFINITY" if program.limit == math.inf else f"{program.limit!r}f"
    return (
        f"    for (k = 0; k < {program.size}; k++)\n"
        f"        v0[k] = clip(({number} - mean[k]) * scale[k], -{limit}, {limit});"
    )


def _calls(program: ExportedPolicy) -> Iterator[str]:
    """Yield the calls of all statements; statement k writes to the array v<k>, counted from 1."""
    sizes = sizes_of(program)
    for k, statement in enumerate(program.statements, 1):
        if statement.operation == "concatenate":
            begin = 0
            for source in statement.sources:
                yield f"append(v{source}, v{k} + {begin}, {sizes[source]});"
                begin += sizes[source]
        else:
            yield _call(statement, out=f"v{k}")


def _call(statement: Statement, out: str) -> str:
    """Return the call of an operation; arguments are as in `FUNCTIONS`."""
    sources, options = [f"v{k}" for k in statement.sources], statement.options
    arrays = [_identifier(name) for name in statement.arrays]
    if "state" in options:
        arguments = [*sources, *arrays, f"state + {options['state']}"]
    else:
        arguments = [*sources, *map(str, options.values()), *arrays]
    # math.h has a `tanh` of its own.
    name = "hyperbolic" if statement.operation == "tanh" else statement.operation
    return f"{name}({', '.join([*arguments, out, str(statement.size)])});"


def _functions(program: ExportedPolicy) -> str:
    """Return the functions of operations, and those that read observations and choose actions."""
    used = sorted({each.operation for each in program.statements})
    others = [_CLIP] if program.shape else [_CLIP, _ONE_HOT]
    text = "\n".join([*others, *(FUNCTIONS[operation] for operation in used)])
    if not program.head.choices:
        return text
    words = {"mask": "", "first": "0", "condition": "", "after": "", "result": "best"}
    if program.is_masked:  # -1 until an allowed one was found
        words = {
            "mask": "const unsigned char *allowed, ",
            "first": "-1",
            "condition": "allowed[k] && (best < 0 || ",
            "after": ")",
            "result": "best < 0 ? 0 : best",
        }
    return f"{text}\n{_LARGEST.format(**words)}"


def _act(program: ExportedPolicy, signature: str, name: str) -> str:
    """Return the function that acts."""
    head = program.head
    lines = [f"float outputs[{head.size}];"]
    if not head.choices:
        lines.append("int k;")
    lines.append(f"{name}_outputs(observation, {'state, ' if program.state_size else ''}outputs);")
    if not head.choices:
        x = "tanhf(outputs[k])" if head.is_squashed else "outputs[k]"
        scaled = f"center[k] + half[k] * {x}"
        lines.append(f"for (k = 0; k < {head.size}; k++)")
        lines.append(f"    action[k] = clip({scaled}, low[k], high[k]);")
    elif head.is_list:
        first = 0
        for k, count in enumerate(head.choices):
            mask = f"allowed + {first}, " if program.is_masked else ""
            lines.append(f"action[{k}] = largest(outputs + {first}, {mask}{count});")
            first += count
    else:
        mask = "allowed, " if program.is_masked else ""
        lines.append(f"return largest(outputs, {mask}{head.size});")
    return "\n".join([signature, "{", *(f"    {line}" for line in lines), "}"])


def _print_action(program: ExportedPolicy, name: str, action_size: int) -> str:
    """Return the lines of C's `main` that act and print the action, a number or a list of them."""
    head, arguments = program.head, "observation, state" if program.state_size else "observation"
    arguments += ", allowed" if program.is_masked else ""
    if not head.is_list:
        return f'printf("%d", {name}_act({arguments}));'
    format, cast = ("%d", "") if head.choices else ("%.9g", "(double)")
    return (
        f"{name}_act({arguments}, action);\n        for (k = 0; k < {action_size}; k++)"
        f' printf("%s{format}", k ? " " : "", {cast}action[k]);'
    )
