//! Dates as Python's `strftime` writes them.
//!
//! Some templates write today's date into the system message with `strftime_now`, a function that
//! transformers adds. Times are in UTC, and names are English.

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
/// The names of the days from Sunday.
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Return the time `since_1970`, in UTC, in the given format.
///
/// The directives are those of Python on Linux: all of C's, and `%f`. Between `%` and the letter
/// may stand the flags of glibc (`-` for no padding, `_` and `0` for the padding, `^` for upper
/// case and `#` for the other case), a width, and `E` or `O`, which change nothing. `%z` and `%Z`
/// write nothing, because the time has no zone in Python. Other directives stay as they are.
pub(super) fn written(since_1970: Duration, format: &str) -> String {
    let date = Date::of(since_1970);
    let mut out = String::new();
    let mut rest = format;
    while let Some((before, directive)) = rest.split_once('%') {
        out.push_str(before);
        let (style, after) = Style::read(directive);
        let mut chars = after.chars();
        rest = match chars.next().and_then(|letter| date.field(letter)) {
            Some(field) => {
                style.write(&field, &mut out);
                chars.as_str()
            }
            None => {
                out.push('%');
                directive
            }
        };
    }
    out.push_str(rest);
    out
}

/// The widest field; wider ones are cut down to it.
const MAX_WIDTH: usize = 64;

/// The flags and the width of a directive.
#[derive(Default)]
struct Style {
    /// The padding that the flags ask for: `-` for none.
    padding: Option<char>,
    /// True for upper case.
    upper: bool,
    /// True for the other case: upper for names, lower for `AM` and `PM`.
    other_case: bool,
    /// The least number of characters.
    width: Option<usize>,
}

impl Style {
    /// Read flags, width and modifier at the beginning of `text`, and return what follows them.
    fn read(text: &str) -> (Self, &str) {
        let mut style = Self::default();
        let mut rest = text;
        while let Some(flag) = rest.chars().next().filter(|c| matches!(c, '-' | '_' | '0' | '^' | '#')) {
            match flag {
                '^' => style.upper = true,
                '#' => style.other_case = true,
                padding => style.padding = Some(padding),
            }
            rest = rest.get(1..).unwrap_or("");
        }
        let after = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        if after.len() < rest.len() {
            let digits = rest.get(..rest.len() - after.len()).unwrap_or("");
            style.width = Some(digits.parse().unwrap_or(MAX_WIDTH).min(MAX_WIDTH));
        }
        (style, after.strip_prefix(['E', 'O']).unwrap_or(after))
    }

    /// Append a field.
    fn write(&self, field: &Field, out: &mut String) {
        let (text, usual, width) = match field {
            Field::Number(n, width, padding) => (format!("{n}"), *padding, *width),
            Field::Name(name) if self.upper || self.other_case => (name.to_uppercase(), ' ', 0),
            Field::Half(name) if self.other_case => (name.to_lowercase(), ' ', 0),
            Field::Name(text) | Field::Half(text) => ((*text).into(), ' ', 0),
            Field::Text(text) if self.upper => (text.to_uppercase(), ' ', 0),
            Field::Text(text) => (text.clone(), ' ', 0),
        };
        let padding = match self.padding {
            Some('_') => Some(' '),
            Some('0') => Some('0'),
            Some(_) => None,
            None => Some(usual),
        };
        let missing = self.width.unwrap_or(width).saturating_sub(text.chars().count());
        out.extend(padding.into_iter().flat_map(|padding| core::iter::repeat_n(padding, missing)));
        out.push_str(&text);
    }
}

/// The value of a directive.
enum Field {
    /// A number with its usual width and padding.
    Number(u64, usize, char),
    /// The name of a month or a day.
    Name(&'static str),
    /// The half of a day: `AM` or `PM`.
    Half(&'static str),
    /// Any other text.
    Text(String),
}

/// A day and a time of day, in UTC.
struct Date {
    /// The time since 1970 in seconds.
    seconds: u64,
    /// The microseconds beyond it.
    micros: u32,
    year: u64,
    /// The month, from 1.
    month: u64,
    /// The day of the month, from 1.
    day: u64,
    /// The day of the year, from 1.
    day_of_year: u64,
    /// The day of the week, 0 on Sundays.
    weekday: u64,
}

impl Date {
    /// Return the date of a time.
    fn of(since_1970: Duration) -> Self {
        let seconds = since_1970.as_secs();
        let days = seconds / 86_400;
        let (year, month, day, day_of_year) = civil(days);
        // 1970 began on a Thursday.
        Self {
            seconds,
            micros: since_1970.subsec_micros(),
            year,
            month,
            day,
            day_of_year,
            weekday: (days + 4) % 7,
        }
    }

    /// Return the name of the day.
    fn day_name(&self) -> &'static str {
        DAYS.get(self.weekday as usize).copied().unwrap_or("")
    }

    /// Return the name of the month.
    fn month_name(&self) -> &'static str {
        MONTHS.get(self.month as usize - 1).copied().unwrap_or("")
    }

    /// Return the week of the year and its year as ISO 8601 counts them: weeks begin on Mondays,
    /// and the first one has the year's first Thursday.
    fn iso_week(&self) -> (u64, u64) {
        let from_monday = (self.weekday + 6) % 7 + 1;
        let week = (self.day_of_year + 10 - from_monday) / 7;
        // A year has 53 weeks if its 1 January is a Thursday, or a Wednesday of a leap year.
        let n_weeks = |day: u64, year: u64| 52 + u64::from(day == 4 || (day == 3 && leap(year) == 1));
        let new_year = (from_monday + 7 * 53 - self.day_of_year) % 7 + 1;
        if week == 0 {
            let year = self.year - 1;
            let before = (new_year + 7 * 53 - (365 + leap(year)) - 1) % 7 + 1;
            (n_weeks(before, year), year)
        } else if week > n_weeks(new_year, self.year) {
            (1, self.year + 1)
        } else {
            (week, self.year)
        }
    }

    /// Return the number of the week if weeks begin on this day (0 for Sundays), and days before
    /// the first such day are in week 0.
    fn week_from(&self, first: u64) -> u64 {
        (self.day_of_year + 6 - (self.weekday + 7 - first) % 7) / 7
    }

    /// Return the value of a directive; `None` if there is no such one.
    fn field(&self, letter: char) -> Option<Field> {
        let (hour, minute, second) = (self.seconds / 3600 % 24, self.seconds / 60 % 60, self.seconds % 60);
        let hour_of_12 = if hour % 12 == 0 { 12 } else { hour % 12 };
        let half = if hour < 12 { "AM" } else { "PM" };
        let two = |n: u64| Field::Number(n, 2, '0');
        let spaced = |n: u64| Field::Number(n, 2, ' ');
        let composed = |format: &str| {
            let now = Duration::new(self.seconds, self.micros * 1000);
            Field::Text(written(now, format))
        };
        let short = |name: &'static str| Field::Name(name.get(..3).unwrap_or(name));
        Some(match letter {
            'Y' => Field::Number(self.year, 4, '0'),
            'y' => two(self.year % 100),
            'C' => two(self.year / 100),
            'G' => Field::Number(self.iso_week().1, 4, '0'),
            'g' => two(self.iso_week().1 % 100),
            'V' => two(self.iso_week().0),
            'U' => two(self.week_from(0)),
            'W' => two(self.week_from(1)),
            'u' => Field::Number((self.weekday + 6) % 7 + 1, 1, '0'),
            'w' => Field::Number(self.weekday, 1, '0'),
            'm' => two(self.month),
            'd' => two(self.day),
            'e' => spaced(self.day),
            'j' => Field::Number(self.day_of_year, 3, '0'),
            'B' => Field::Name(self.month_name()),
            'b' | 'h' => short(self.month_name()),
            'A' => Field::Name(self.day_name()),
            'a' => short(self.day_name()),
            'H' => two(hour),
            'k' => spaced(hour),
            'I' => two(hour_of_12),
            'l' => spaced(hour_of_12),
            'M' => two(minute),
            'S' => two(second),
            's' => Field::Number(self.seconds, 1, '0'),
            'f' => Field::Number(self.micros.into(), 6, '0'),
            'p' => Field::Half(half),
            'P' => Field::Text(half.to_lowercase()),
            'c' => composed("%a %b %e %H:%M:%S %Y"),
            'D' | 'x' => composed("%m/%d/%y"),
            'F' => composed("%Y-%m-%d"),
            'R' => composed("%H:%M"),
            'r' => composed("%I:%M:%S %p"),
            'T' | 'X' => composed("%H:%M:%S"),
            'n' => Field::Text("\n".into()),
            't' => Field::Text("\t".into()),
            'z' | 'Z' => Field::Text(String::new()),
            '%' => Field::Text("%".into()),
            _ => return None,
        })
    }
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
            (1_104_562_805, "%c|%D|%r|%R|%X|%x|%s", DATE_IN_FULL),
            (1_104_562_805, "[%n%t]%z%Z%f%h", "[\n\t]000000Jan"),
            (1_104_562_805, "%_d %-I %05d %^a %#p %#b %^B %10A %-5d %Ey %Od %^c", FLAGS),
            (1_104_562_805, "%+ %N %E %5% %3k %1Y %", "%+ %N %E     %   7 2005 %"),
        ];
        for (seconds, format, wanted) in cases {
            assert_eq!(written(Duration::from_secs(seconds), format), wanted, "{format}");
        }
        assert_eq!(written(Duration::from_micros(1_000_042), "%S.%f"), "01.000042");
    }

    const DATE_IN_FULL: &str =
        "Sat Jan  1 07:00:05 2005|01/01/05|07:00:05 AM|07:00|07:00:05|01/01/05|1104562805";
    const FLAGS: &str = " 1 7 00001 SAT am JAN JANUARY   Saturday 1 05 01 SAT JAN  1 07:00:05 2005";

    /// Python's own answers, with beginnings and ends of years that belong to weeks of another one.
    #[test]
    fn weeks_are_counted_as_python_does() {
        let format = "%a %b %C %g %G %h %k %l %P %u %U %V %w %W %x";
        let cases = [
            (0, "Thu Jan 19 70 1970 Jan  0 12 am 4 00 01 4 00 01/01/70"),
            (951_782_400, "Tue Feb 20 00 2000 Feb  0 12 am 2 09 09 2 09 02/29/00"),
            (978_307_199, "Sun Dec 20 00 2000 Dec 23 11 pm 7 53 52 0 52 12/31/00"),
            (1_009_890_000, "Tue Jan 20 02 2002 Jan 13  1 pm 2 00 01 2 00 01/01/02"),
            (1_104_537_600, "Sat Jan 20 04 2004 Jan  0 12 am 6 00 53 6 00 01/01/05"),
            (1_230_508_800, "Mon Dec 20 09 2009 Dec  0 12 am 1 52 01 1 52 12/29/08"),
            (1_483_228_800, "Sun Jan 20 16 2016 Jan  0 12 am 7 01 52 0 00 01/01/17"),
            (1_735_689_600, "Wed Jan 20 25 2025 Jan  0 12 am 3 00 01 3 00 01/01/25"),
            (4_107_542_400, "Mon Mar 21 00 2100 Mar  0 12 am 1 09 09 1 09 03/01/00"),
        ];
        for (seconds, wanted) in cases {
            assert_eq!(written(Duration::from_secs(seconds), format), wanted, "{seconds}");
        }
    }
}
