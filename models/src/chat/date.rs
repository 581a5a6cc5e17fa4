//! Dates as Python's `strftime` writes them.
//!
//! Some templates write today's date into the system message with `strftime_now`, a function that
//! transformers adds. Time zones are not supported: dates are in UTC, and names are English.

use alloc::format;
use alloc::string::String;
use core::time::Duration;

/// The names of the months from January.
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// The names of the days from 1970-01-01, a Thursday.
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Return the time `since_1970`, in UTC, in the given format. Directives are `%Y %y %m %d %e %j %B
/// %b %A %a %H %I %M %S %p %F %T %%`, with `-` after the per cent sign for no leading zero. Other
/// directives stay as they are.
pub(super) fn written(since_1970: Duration, format: &str) -> String {
    let mut out = String::new();
    let mut rest = format;
    while let Some((before, directive)) = rest.split_once('%') {
        out.push_str(before);
        let (bare, name) = match directive.strip_prefix('-') {
            Some(name) => (true, name),
            None => (false, directive),
        };
        let mut after = name.chars();
        match after.next().and_then(|c| directive_text(since_1970, c)) {
            Some(text) if bare => out.push_str(unpadded(&text)),
            Some(text) => out.push_str(&text),
            None => {
                out.push('%');
                after = directive.chars();
            }
        }
        rest = after.as_str();
    }
    out.push_str(rest);
    out
}

/// Return `text` without leading zeros or spaces.
fn unpadded(text: &str) -> &str {
    let short = text.trim_start_matches(['0', ' ']);
    if short.is_empty() { "0" } else { short }
}

/// Return the text of one directive; `None` if it is not supported.
fn directive_text(since_1970: Duration, directive: char) -> Option<String> {
    let (days, seconds) = (since_1970.as_secs() / 86_400, since_1970.as_secs() % 86_400);
    let (year, month, day, day_of_year) = civil(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let hour_of_12 = if hour % 12 == 0 { 12 } else { hour % 12 };
    let month_name = MONTHS.get(month as usize - 1).copied().unwrap_or("");
    let day_name = DAYS.get((days % 7) as usize).copied().unwrap_or("");
    Some(match directive {
        'Y' => format!("{year}"),
        'y' => format!("{:02}", year % 100),
        'm' => format!("{month:02}"),
        'd' => format!("{day:02}"),
        'e' => format!("{day:2}"),
        'j' => format!("{day_of_year:03}"),
        'B' => month_name.into(),
        'b' => month_name.chars().take(3).collect(),
        'A' => day_name.into(),
        'a' => day_name.chars().take(3).collect(),
        'H' => format!("{hour:02}"),
        'I' => format!("{hour_of_12:02}"),
        'M' => format!("{minute:02}"),
        'S' => format!("{second:02}"),
        'p' => if hour < 12 { "AM" } else { "PM" }.into(),
        'F' => format!("{year}-{month:02}-{day:02}"),
        'T' => format!("{hour:02}:{minute:02}:{second:02}"),
        '%' => "%".into(),
        _ => return None,
    })
}

/// Return year, month and day from 1, and day of the year from 1, of the day that is `days` after
/// 1970-01-01.
fn civil(mut days: u64) -> (u64, u64, u64, u64) {
    // 400 years always have the same number of days. Counting starts at 1600, the beginning of such
    // a cycle.
    days += 135_140;
    let mut year = 1600 + days / 146_097 * 400;
    days %= 146_097;
    while days >= 365 + leap(year) {
        days -= 365 + leap(year);
        year += 1;
    }
    let day_of_year = days + 1;
    let mut month = 1;
    for length in [31, 28 + leap(year), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1, day_of_year)
}

/// Return the number of days of a year beyond 365.
fn leap(year: u64) -> u64 {
    u64::from(year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_python_does() {
        let cases = [
            (0, "%A %d %B %Y %H:%M:%S %j", "Thursday 01 January 1970 00:00:00 001"),
            (951_782_400, "%F %a %-d %b %e", "2000-02-29 Tue 29 Feb 29"),
            (978_307_199, "%F %T %j %p %I", "2000-12-31 23:59:59 366 PM 11"),
            (1_732_203_245, "%d %b %Y", "21 Nov 2024"),
            (1_735_689_600, "%-d.%-m.%y %-H %I%p", "1.1.25 0 12AM"),
            (4_107_542_400, "%F", "2100-03-01"),
            (0, "100%% %Q %", "100% %Q %"),
        ];
        for (seconds, format, wanted) in cases {
            assert_eq!(written(Duration::from_secs(seconds), format), wanted);
        }
    }
}
