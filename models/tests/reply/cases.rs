//! Texts in all formats, and the replies that they are.

/// A text in a format, and the reply that it is.
pub struct Case {
    /// Texts of a template that tell of the format.
    pub template: &'static str,
    /// The name of the format.
    pub format: &'static str,
    /// The text.
    pub text: &'static str,
    /// The content.
    pub content: &'static str,
    /// The reasoning.
    pub reasoning: &'static str,
    /// The calls: identifier, name, arguments.
    pub calls: &'static [(&'static str, &'static str, &'static str)],
}

/// The arguments of most cases.
pub const OSLO: &str = r#"{"city": "Oslo", "days": 3}"#;
/// The arguments of these cases where they are converted.
const OSLO_WRITTEN: &str = r#"{"city":"Oslo","days":3}"#;

/// Texts in all formats.
pub const CASES: &[Case] = &[
    Case {
        template: "<think> <tool_call>{",
        format: "hermes",
        text: "<think>\nRain?\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \
               \"days\": 3}}\n</tool_call>\n<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>",
        content: "I look.",
        reasoning: "Rain?",
        calls: &[("", "weather", OSLO), ("", "time", "{}")],
    },
    Case {
        template: "<tool_call> <function= <parameter= <think>",
        format: "qwen3-coder",
        text: "<think>I need it. <tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\
               \n3\n</parameter>\n</function>\n</tool_call>",
        content: "",
        reasoning: "I need it.",
        calls: &[("", "weather", OSLO_WRITTEN)],
    },
    Case {
        template: "[TOOL_CALLS]",
        format: "mistral-nemo",
        text: "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}, \"id\": \"abc123456\"}]",
        content: "",
        reasoning: "",
        calls: &[("abc123456", "weather", OSLO)],
    },
    Case {
        template: "[TOOL_CALLS] [ARGS] [THINK]",
        format: "mistral-small",
        text: "[THINK]Hm[/THINK]Yes.[TOOL_CALLS]weather[CALL_ID]abc[ARGS]{\"city\": \"Oslo\", \"days\": 3}\
               [TOOL_CALLS]time[ARGS]{}",
        content: "Yes.",
        reasoning: "Hm",
        calls: &[("abc", "weather", OSLO), ("", "time", "{}")],
    },
    Case {
        template: "<|python_tag|>",
        format: "llama-3",
        text: "{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\", \"days\": 3}}; {\"name\": \"time\"}",
        content: "",
        reasoning: "",
        calls: &[("", "weather", OSLO), ("", "time", "{}")],
    },
    Case {
        template: "<|python_tag|>",
        format: "llama-3",
        text: "[weather(city='Oslo', days=3), time()]",
        content: "",
        reasoning: "",
        calls: &[("", "weather", OSLO_WRITTEN), ("", "time", "{}")],
    },
    Case {
        template: "<|python_tag|>",
        format: "llama-3",
        text: "<|python_tag|>{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"arguments\": \
               \"{\\\"days\\\": 3}\"}}<|eom_id|>",
        content: "",
        reasoning: "",
        calls: &[("", "weather", r#"{"days": 3}"#)],
    },
    Case {
        template: "<|tool_call_start|>",
        format: "lfm2",
        text: "Well. <|tool_call_start|>[weather(city=\"Oslo\", days=3)]<|tool_call_end|> Done.",
        content: "Well.Done.",
        reasoning: "",
        calls: &[("", "weather", OSLO_WRITTEN)],
    },
    Case {
        template: "<function= </function>",
        format: "functionary-v3.1",
        text: "<function=weather>{\"city\": \"Oslo\", \"days\": 3}</function>",
        content: "",
        reasoning: "",
        calls: &[("", "weather", OSLO)],
    },
    Case {
        template: ">>>all >>>${recipient}",
        format: "functionary-v3.2",
        text: ">>>all\nI look.>>>weather\n{\"city\": \"Oslo\", \"days\": 3}",
        content: "I look.",
        reasoning: "",
        calls: &[("", "weather", OSLO)],
    },
    Case {
        template: "functools[",
        format: "firefunction-v2",
        text: " functools[{\"name\": \"time\", \"arguments\": {}}, {\"name\": \"weather\", \"arguments\": {\"days\": 1}}]",
        content: "",
        reasoning: "",
        calls: &[("", "time", "{}"), ("", "weather", r#"{"days": 1}"#)],
    },
    Case {
        template: "<｜tool▁calls▁begin｜> ```json <think>",
        format: "deepseek-r1",
        text: "<think>Hm</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n\
               {\"city\": \"Oslo\", \"days\": 3}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>time\n\
               ```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        content: "",
        reasoning: "Hm",
        calls: &[("", "weather", OSLO), ("", "time", "{}")],
    },
    Case {
        template: "<｜tool▁calls▁begin｜>",
        format: "deepseek-v3.1",
        text: "So:<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>time<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        content: "So:",
        reasoning: "",
        calls: &[("", "time", "{}")],
    },
    Case {
        template: "DSML tool_calls",
        format: "deepseek-v4",
        text: "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Oslo\
               </｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">3</｜DSML｜parameter>\n\
               </｜DSML｜invoke>\n</｜DSML｜tool_calls>",
        content: "",
        reasoning: "",
        calls: &[("", "weather", OSLO_WRITTEN)],
    },
    Case {
        template: "DSML calls>",
        format: "deepseek-v4.1",
        text: "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"weather\">\n<｜DSML｜ parameter name=\"city\" string=\"true\">Oslo\
               </｜DSML｜ parameter>\n<｜DSML｜ parameter name=\"days\" string=\"false\">3</｜DSML｜ parameter>\n\
               </｜DSML｜ invoke>\n</｜DSML｜ calls>",
        content: "",
        reasoning: "",
        calls: &[("", "weather", OSLO_WRITTEN)],
    },
    Case {
        template: "<|START_ACTION|> <|START_THINKING|>",
        format: "command-r7b",
        text: "<|START_THINKING|>Hm<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"weather\", \
               \"parameters\": {\"city\": \"Oslo\", \"days\": 3}}\n]<|END_ACTION|>",
        content: "",
        reasoning: "Hm",
        calls: &[("0", "weather", OSLO)],
    },
    Case {
        template: "<|tool_call|>",
        format: "granite-3",
        text: "<|tool_call|>[{\"name\": \"time\", \"arguments\": {}}]",
        content: "",
        reasoning: "",
        calls: &[("", "time", "{}")],
    },
    Case {
        template: "<|tool_call|> <|/tool_call|>",
        format: "phi-4-mini",
        text: "<|tool_call|>[{\"name\": \"time\", \"arguments\": {}}]<|/tool_call|>",
        content: "",
        reasoning: "",
        calls: &[("", "time", "{}")],
    },
    Case {
        template: "<arg_key> <arg_value>",
        format: "glm-4.5",
        text: "\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n\
               <arg_value>3</arg_value>\n</tool_call><tool_call>time</tool_call>",
        content: "",
        reasoning: "",
        calls: &[("", "weather", OSLO_WRITTEN), ("", "time", "{}")],
    },
    Case {
        template: "<|tool_calls_section_begin|>",
        format: "kimi-k2",
        text: "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": \
               \"Oslo\", \"days\": 3}<|tool_call_end|><|tool_calls_section_end|>",
        content: "",
        reasoning: "",
        calls: &[("functions.weather:0", "weather", OSLO)],
    },
    Case {
        template: "<minimax:tool_call>",
        format: "minimax-m2",
        text: "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Oslo</parameter>\n<parameter \
               name=\"days\">3</parameter>\n</invoke>\n</minimax:tool_call>",
        content: "",
        reasoning: "",
        calls: &[("", "weather", OSLO_WRITTEN)],
    },
    Case {
        template: "]<]minimax[>[ <invoke name= <mm:think>",
        format: "minimax-m3",
        text: "<mm:think>Hm</mm:think>]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"weather\">]<]minimax[>[<city>Oslo\
               ]<]minimax[>[</city>]<]minimax[>[<more>]<]minimax[>[<item>1]<]minimax[>[</item>]<]minimax[>[</more>\
               ]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
        content: "",
        reasoning: "Hm",
        calls: &[("", "weather", r#"{"city":"Oslo","more":[1]}"#)],
    },
    Case {
        template: "<|channel|> <|message|>",
        format: "harmony",
        text: "<|channel|>analysis<|message|>Rain?<|end|><|start|>assistant<|channel|>commentary to=functions.weather \
               <|constrain|>json<|message|>{\"city\": \"Oslo\", \"days\": 3}<|call|>",
        content: "",
        reasoning: "Rain?",
        calls: &[("", "weather", OSLO)],
    },
    Case {
        template: "<atem:function_calls> <|eom|>",
        format: "muse-glimmer",
        text: " to=self<|message|>Hm<|eom|><|start|>assistant to=user<|message|>I look.<|eom|><|start|>assistant \
               to=weather<|message|><atem:function_calls>\n<atem:invoke name=\"weather\">\n<atem:parameter name=\"city\">\
               Oslo</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eot|>",
        content: "I look.",
        reasoning: "Hm",
        calls: &[("", "weather", r#"{"city":"Oslo"}"#)],
    },
    Case {
        template: "<seed:tool_call> <function= <parameter= <seed:think>",
        format: "seed-oss",
        text: "<seed:think>Hm</seed:think><seed:tool_call>\n<function=weather>\n<parameter=city>Oslo</parameter>\n\
               <parameter=days>3</parameter>\n</function>\n</seed:tool_call>",
        content: "",
        reasoning: "Hm",
        calls: &[("", "weather", OSLO_WRITTEN)],
    },
    Case {
        template: "<TOOLCALL>",
        format: "nemotron-nano-v2",
        text: "<TOOLCALL>[{\"name\": \"time\", \"arguments\": {}}]</TOOLCALL>",
        content: "",
        reasoning: "",
        calls: &[("", "time", "{}")],
    },
    Case {
        template: "<|tools_prefix|>",
        format: "apertus",
        text: "<|tools_prefix|>[{\"weather\": {\"city\": \"Oslo\", \"days\": 3}}, {\"time\": {}}]<|tools_suffix|>",
        content: "",
        reasoning: "",
        calls: &[("", "weather", OSLO), ("", "time", "{}")],
    },
    Case {
        template: "tool_calls \"arguments\":",
        format: "json",
        text: "[{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}}]",
        content: "",
        reasoning: "",
        calls: &[("", "weather", OSLO)],
    },
    Case {
        template: "<|tool_call>call: <|channel>thought",
        format: "gemma-4",
        text: "<|channel>thought\nHm<channel|>So.<|tool_call>call:weather{city:<|\"|>Oslo<|\"|>,days:3}<tool_call|>",
        content: "So.",
        reasoning: "Hm",
        calls: &[("", "weather", OSLO_WRITTEN)],
    },
    Case {
        template: "<function name=\" <param name=\"",
        format: "minicpm-5",
        text: "<function name=\"weather\"><param name=\"city\"><![CDATA[a</param>]]></param></function>",
        content: "",
        reasoning: "",
        calls: &[("", "weather", r#"{"city":"a</param>"}"#)],
    },
    Case {
        template: "<|tool_call:begin|> <|tool_call:args|> <|think|> <|end|>",
        format: "solar-open",
        text: "<|think|>Hm<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1<|tool_call:name|>time<|tool_call:args|>\
               {}<|tool_call:end|><|calls|>",
        content: "",
        reasoning: "Hm",
        calls: &[("a1", "time", "{}")],
    },
    Case {
        template: "<function_calls>",
        format: "olmo-3",
        text: "I look.\n<function_calls>\nweather(city=\"Oslo\", days=3)\ntime()\n</function_calls>",
        content: "I look.",
        reasoning: "",
        calls: &[("", "weather", OSLO_WRITTEN), ("", "time", "{}")],
    },
    Case {
        template: "<start_function_call>",
        format: "functiongemma",
        text: "<start_function_call>call:weather{city:<escape>Oslo<escape>,days:3}<end_function_call>",
        content: "",
        reasoning: "",
        calls: &[("", "weather", OSLO_WRITTEN)],
    },
    Case {
        template: "<|open|> <|close|> <|end_of_msg|>",
        format: "kimi-k3",
        text: "<|open|>think<|sep|>Hm<|close|>think<|sep|><|open|>response<|sep|>I look.<|close|>response<|sep|><|open|>tools<|sep|><|open|>call \
               tool=\"weather\" index=\"1\"<|sep|><|open|>argument key=\"city\" type=\"string\"<|sep|>Oslo<|close|>argument<|sep|>\
               <|open|>argument key=\"days\" type=\"number\"<|sep|>3<|close|>argument<|sep|><|close|>call<|sep|>\
               <|close|>tools<|sep|><|close|>message<|sep|>",
        content: "I look.",
        reasoning: "Hm",
        calls: &[("", "weather", OSLO_WRITTEN)],
    },
];
