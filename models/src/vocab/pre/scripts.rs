//! Ranges of characters that some expressions list one by one.

/// Return true if `c` lies in one of the sorted `ranges`.
fn within(ranges: &[(u32, u32)], c: char) -> bool {
    let c = c as u32;
    let after = ranges.partition_point(|&(_, last)| last < c);
    ranges.get(after).is_some_and(|&(first, _)| first <= c)
}

/// Return true for Han, Hiragana and Katakana as DeepSeek V3's second expression lists them.
pub(super) fn is_han_or_kana(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{4e00}'..='\u{9fa5}')
}

/// Return true for the East Asian ranges of DeepSeek LLM and Coder.
pub(super) fn is_east_asian(c: char) -> bool {
    matches!(c, '\u{800}'..='\u{9fa5}' | '\u{ac00}'..='\u{d7ff}')
}

/// Return true for the characters of the script Han.
pub(super) fn is_han(c: char) -> bool {
    !c.is_ascii() && within(HAN, c)
}

/// Return true for the scripts that AFMoE's second expression lists: ideographs, kana, Hangul,
/// Thai, Lao, Khmer and Myanmar.
pub(super) fn is_asian(c: char) -> bool {
    !c.is_ascii() && within(ASIAN, c)
}

/// Return true for Hangul syllables and letters, as Youtu lists them.
pub(super) fn is_hangul(c: char) -> bool {
    matches!(c, '\u{3131}'..='\u{318e}' | '\u{ac00}'..='\u{d7a3}')
}

/// Return true for the punctuation of East Asian text that Youtu lists.
pub(super) fn is_wide_punctuation(c: char) -> bool {
    matches!(c, '！' | '…' | '“' | '”' | '‘' | '’' | '—' | '：' | '；' | '，')
        || matches!(c, '\u{3001}'..='\u{303f}' | '\u{fe30}'..='\u{fe4f}')
}

/// Return true for Bopomofo, as Youtu lists it.
pub(super) fn is_bopomofo(c: char) -> bool {
    matches!(c, '\u{3105}'..='\u{312f}')
}

/// Return true for the punctuation of DeepSeek LLM: ASCII except digits, its full-width forms,
/// quotes, and the ideographic full stop.
pub(super) fn is_full_or_half_width_sign(c: char) -> bool {
    matches!(c, '!'..='/' | ':'..='~' | '！'..='／' | '：'..='～' | '\u{2018}'..='\u{201f}' | '\u{3000}'..='\u{3002}')
}

/// Return true for characters that end Bloom's words: white space, brackets, the bar, and the full
/// stops, commas and ellipses of several scripts.
pub(super) fn ends_bloom_word(c: char) -> bool {
    c.is_whitespace() || "(|.,!?…。，、।۔،)".contains(c)
}

/// Return true for the letters with case of Latin, Greek, Cyrillic, Armenian, Georgian, Cherokee
/// and others, as DeepSeek LLM lists them.
pub(super) fn is_cased(c: char) -> bool {
    c.is_ascii_alphabetic() || within(CASED, c)
}

/// The ranges of the script Han.
#[rustfmt::skip]
const HAN: &[(u32, u32)] = &[
    (0x2e80, 0x2e99), (0x2e9b, 0x2ef3), (0x2f00, 0x2fd5), (0x3005, 0x3005), (0x3007, 0x3007), (0x3021, 0x3029),
    (0x3038, 0x303b), (0x3400, 0x4dbf), (0x4e00, 0x9fff), (0xf900, 0xfa6d), (0xfa70, 0xfad9), (0x16fe2, 0x16fe3),
    (0x16ff0, 0x16ff6), (0x20000, 0x2a6df), (0x2a700, 0x2b81d), (0x2b820, 0x2cead), (0x2ceb0, 0x2ebe0),
    (0x2ebf0, 0x2ee5d), (0x2f800, 0x2fa1d), (0x30000, 0x3134a), (0x31350, 0x33479),
];

/// The ranges of [`is_asian`].
#[rustfmt::skip]
const ASIAN: &[(u32, u32)] = &[
    (0x0e40, 0x0e7f), (0x0e80, 0x0eff), (0x1000, 0x109f), (0x1100, 0x11ff), (0x1780, 0x17ff), (0x2f00, 0x2fdf),
    (0x3040, 0x30ff), (0x3400, 0x4dbf), (0x4e00, 0x9fff), (0xa000, 0xfaff), (0xff65, 0xff9f),
];

/// The ranges of letters with case beyond ASCII.
#[rustfmt::skip]
const CASED: &[(u32, u32)] = &[
    (0x00b5, 0x00b5), (0x00c0, 0x00d6), (0x00d8, 0x00f6), (0x00f8, 0x01ba), (0x01bc, 0x01bf), (0x01c4, 0x0293),
    (0x0295, 0x02af), (0x0370, 0x0373), (0x0376, 0x0377), (0x037b, 0x037d), (0x037f, 0x037f), (0x0386, 0x0386),
    (0x0388, 0x038a), (0x038c, 0x038c), (0x038e, 0x03a1), (0x03a3, 0x03f5), (0x03f7, 0x0481), (0x048a, 0x052f),
    (0x0531, 0x0556), (0x10a0, 0x10c5), (0x13a0, 0x13f5), (0x13f8, 0x13fd), (0x1c90, 0x1cba), (0x1cbd, 0x1cbf),
    (0x1d00, 0x1d2b), (0x1d6b, 0x1d77), (0x1d79, 0x1d9a), (0x1e00, 0x1f15), (0x1f18, 0x1f1d), (0x1f20, 0x1f45),
    (0x1f48, 0x1f4d), (0x1f50, 0x1f57), (0x1f59, 0x1f59), (0x1f5b, 0x1f5b), (0x1f5d, 0x1f5d), (0x1f5f, 0x1f7d),
    (0x1f80, 0x1fb4), (0x1fb6, 0x1fbc), (0x1fbe, 0x1fbe), (0x1fc2, 0x1fc4), (0x1fc6, 0x1fcc), (0x1fd0, 0x1fd3),
    (0x1fd6, 0x1fdb), (0x1fe0, 0x1fec), (0x1ff2, 0x1ff4), (0x1ff6, 0x1ffc), (0x2102, 0x2102), (0x2107, 0x2107),
    (0x210a, 0x2113), (0x2115, 0x2115), (0x2119, 0x211d), (0x2124, 0x2124), (0x2126, 0x2126), (0x2128, 0x2128),
    (0x212a, 0x212d), (0x212f, 0x2134), (0x2139, 0x2139), (0x213c, 0x213f), (0x2145, 0x2149), (0x214e, 0x214e),
    (0x2183, 0x2184), (0x2c00, 0x2c7b), (0x2c7e, 0x2ce4), (0x2ceb, 0x2cee), (0x2cf2, 0x2cf3), (0xa640, 0xa66d),
    (0xa680, 0xa69b), (0xa722, 0xa76f), (0xa771, 0xa787), (0xa78b, 0xa78e), (0xab70, 0xabbf), (0xfb00, 0xfb06),
    (0xfb13, 0xfb17), (0xff21, 0xff3a), (0xff41, 0xff5a), (0x10400, 0x1044f), (0x104b0, 0x104d3), (0x104d8, 0x104fb),
    (0x10c80, 0x10cb2), (0x10cc0, 0x10cf2), (0x118a0, 0x118df), (0x1e900, 0x1e943),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ranges_are_sorted_and_apart() {
        for ranges in [CASED, HAN, ASIAN] {
            assert!(ranges.iter().all(|(first, last)| first <= last));
            assert!(ranges.windows(2).all(|pair| matches!(pair, [(_, last), (first, _)] if last < first)));
        }
    }

    #[test]
    fn the_ends_of_ranges_belong_to_them() {
        for c in ['A', 'z', 'µ', 'Ö', 'ö', 'Ω', 'я', 'Ա', '\u{1e943}'] {
            assert!(is_cased(c), "{c:?}");
        }
        for c in ['0', '×', '÷', '\u{1bb}', '中', '\u{1e944}', char::MAX] {
            assert!(!is_cased(c), "{c:?}");
        }
    }
}
