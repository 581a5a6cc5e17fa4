//! The way to write a schema and its parts: the one of them that closes the object.

use alloc::vec::Vec;

use super::keywords::Keywords;
use super::kinds::{Kinds, Told};
use super::parts::{Named, Part};
use super::write::Writer;
use crate::grammar::GrammarError;

/// The surroundings of a schema.
#[derive(Clone, Copy)]
pub(super) struct Around<'n> {
    /// Other schemas describe the same value, and one of them closes the object.
    pub(super) is_part: bool,
    /// Names that one part of an object forbids are allowed if others have them.
    pub(super) merges: bool,
    /// The library has to join the schema with others.
    pub(super) is_joined: bool,
    /// As far as other schemas say, the object may have properties that none of them names.
    pub(super) is_open: bool,
    /// Objects are closed and lists are complete that are not said to be open.
    pub(super) closes: bool,
    /// The names that other schemas have for the properties of the object, which this one closes.
    pub(super) outside: Option<&'n Named>,
    /// The types that other schemas of the same value tell.
    pub(super) beside: Told,
}

/// The surroundings of a schema that alone describes a value.
pub(super) const ALONE: Around<'static> = Around {
    is_part: false,
    merges: false,
    is_joined: false,
    is_open: true,
    closes: true,
    outside: None,
    beside: Told::NOTHING,
};

/// The way to write a schema and its parts.
pub(super) struct Plan {
    /// The names in the keywords beside the parts, in each part, and in all of them together with
    /// those outside.
    pub(super) base: Named,
    pub(super) each: Vec<Named>,
    pub(super) total: Named,
    /// At most one of them says something about properties, and nothing outside does.
    pub(super) is_alone: bool,
    /// The object is closed here, or in the options of a part.
    pub(super) closes: bool,
    /// It is closed in all options of a part.
    pub(super) leaves: bool,
    /// The surroundings of the parts, as far as they are those of the schema.
    pub(super) inside: Around<'static>,
    /// Only objects match.
    pub(super) is_object: bool,
    /// No other schemas than those of a `not` describe the same value.
    pub(super) is_whole: bool,
    /// The object is closed by `unevaluatedProperties`.
    is_unevaluated: bool,
    /// Names that nothing describes are forbidden, here or by the schema around this one.
    is_strict: bool,
    /// Names are forbidden where nothing describes them, but some that are described only under a
    /// condition are allowed without it.
    pub(super) is_loose: bool,
}

impl Plan {
    /// Return true if the keywords beside the parts are written first. Properties come in the order
    /// in which the library meets them, which is that of the schema; parts that only name some
    /// describe none. Those that are needed come before those that need them.
    pub(super) fn is_base_first(&self, keywords: &Keywords<'_>, parts: &[Part<'_>]) -> bool {
        let describes = |(i, part): (usize, &Part<'_>)| {
            let named =
                self.each.get(i).is_none_or(|named| named.has_properties || !named.patterns.is_empty());
            (named && !matches!(part, Part::Dependent { .. }))
                .then(|| keywords.position(part.keyword()))
                .flatten()
        };
        match (keywords.position("properties"), parts.iter().enumerate().filter_map(describes).min()) {
            (Some(properties), Some(part)) => properties < part,
            (properties, part) => properties.is_some() || part.is_none(),
        }
    }

    /// Return true if other schemas close the object.
    pub(super) fn is_closed_elsewhere(&self) -> bool {
        self.inside.merges && (self.inside.is_part || self.leaves)
    }

    /// Return the names over which the object is closed.
    pub(super) fn closed_over(&self) -> &Named {
        if self.base.is_closed && !self.inside.merges { &self.base } else { &self.total }
    }

    /// Return the names that are outside of each option of a part, if the options are to be closed:
    /// one does not have the properties of another.
    pub(super) fn outside(&self, i: usize, part: &Part<'_>, around: Around<'_>) -> Option<Named> {
        if !self.closes || self.is_alone || !matches!(part, Part::Options(..)) {
            return None;
        }
        let mut outside = self.base.clone();
        for (_, named) in self.each.iter().enumerate().filter(|(j, _)| *j != i) {
            outside.add(named);
        }
        if let Some(named) = around.outside {
            outside.add(named);
        }
        outside.is_closed |= self.is_unevaluated;
        outside.is_strict = self.is_strict;
        if self.is_strict {
            outside.keep_evaluated();
        }
        Some(outside)
    }
}

/// The names of properties in a schema and its parts.
struct Names {
    /// As in [`Plan`].
    base: Named,
    each: Vec<Named>,
    total: Named,
    is_alone: bool,
    is_unevaluated: bool,
    is_strict: bool,
    /// Several of them describe values inside of the same value.
    overlaps: bool,
    /// The schema or its parts list properties.
    has_properties: bool,
}

impl Names {
    /// Return true if the schema, alone or with others around it, allows the names that its parts
    /// forbid each other.
    fn merge(&self, around: Around<'_>) -> bool {
        if around.is_part || around.outside.is_some() {
            return around.merges;
        }
        !self.is_alone
            && self.total.is_contradiction(&self.each.iter().chain([&self.base]).collect::<Vec<_>>())
    }
}

impl Writer<'_> {
    /// Find out how to write a schema and its parts.
    pub(super) fn plan(
        &mut self,
        keywords: &Keywords<'_>,
        parts: &[Part<'_>],
        around: Around<'_>,
    ) -> Result<Plan, GrammarError> {
        let names = self.names(keywords, parts, around)?;
        let merges = names.merge(around);
        let Names { base, each, total, is_alone, is_unevaluated, is_strict, overlaps, has_properties } =
            names;
        let is_listed = has_properties && around.closes && !total.is_open;
        let is_whole_closed = !around.is_part && (total.is_closed || is_listed);
        let is_part_closed = is_unevaluated && !total.is_open && !(around.is_part && merges);
        let closes = keywords.may_be("object") && (is_whole_closed || is_part_closed);
        let inside = Around { is_part: around.is_part, merges, closes: around.closes && !overlaps, ..ALONE };
        // Without a type, the library would try all types.
        let kinds = closes
            .then(|| Told::by_keywords(keywords, self.root, &mut self.looks).and(around.beside).kinds());
        let may_leave =
            closes && (total.is_closed || inside.closes) && !is_alone && (merges || !base.is_closed);
        let leaves =
            may_leave && parts.iter().zip(&each).any(|(part, named)| closes_itself(part, named, is_strict));
        Ok(Plan {
            is_object: kinds.is_some_and(|kinds| kinds.are_among(Kinds::OBJECT)),
            is_whole: parts.iter().all(|part| matches!(part, Part::Negated(_))),
            is_loose: is_strict && parts.iter().zip(&each).any(is_loose),
            base,
            each,
            total,
            is_alone,
            closes,
            leaves,
            inside,
            is_unevaluated,
            is_strict,
        })
    }

    /// Return the names of properties in a schema and its parts.
    fn names(
        &mut self,
        keywords: &Keywords<'_>,
        parts: &[Part<'_>],
        around: Around<'_>,
    ) -> Result<Names, GrammarError> {
        let base = self.named_by_keywords(keywords);
        let is_unevaluated = keywords.has("unevaluatedProperties");
        // What these mean depends on the names in the parts, however few there are.
        let looks = is_unevaluated || parts.iter().any(|part| matches!(part, Part::Dependent { .. }));
        // Any other part that is alone needs no look into it.
        let looks_inside = looks || parts.len() > 1 || !base.is_empty() || around.outside.is_some();
        let each = parts.iter().filter(|_| looks_inside).map(|part| self.named_by_part(part, 0));
        let each = each.collect::<Result<Vec<_>, _>>()?;
        let n_named = each.iter().chain([&base]).filter(|named| !named.is_empty()).count();
        let is_alone = n_named <= 1 && around.outside.is_none() && !looks;
        let (mut total, mut overlaps) = (base.clone(), false);
        for named in each.iter().filter(|_| !is_alone) {
            overlaps |= total.add(named);
        }
        let is_strict = is_unevaluated || around.outside.is_some_and(|outside| outside.is_strict);
        let has_properties = total.has_properties;
        overlaps |= around.outside.is_some_and(|outside| total.add(outside));
        if is_strict {
            total.keep_evaluated();
        }
        Ok(Names { base, each, total, is_alone, is_unevaluated, is_strict, overlaps, has_properties })
    }
}

/// Return true if the options of a part are closed each on its own. Where only described names are
/// allowed, all options are that describe some.
fn closes_itself(part: &Part<'_>, named: &Named, is_strict: bool) -> bool {
    named.closes_itself || is_strict && matches!(part, Part::Options(..)) && named.evaluates()
}

/// Return true if a part describes names under conditions that closing the object does not follow.
fn is_loose((part, named): (&Part<'_>, &Named)) -> bool {
    named.is_conditional || named.is_open && matches!(part, Part::Options(..))
}
