//! The curve of tokens re-evaluated against tokens rolled back.
//!
//! It shows what the checkpoint schedule promises: rolling back d tokens re-evaluates at most
//! max(d, spacing) tokens.

use super::super::legend::Ink;
use super::super::{Picture, n_reevaluated};
use super::sheet::{Across, LEFT, Sheet, WIDE, step};
use backstitch_models::CostRange;

/// Height of the curve.
const HIGH: f64 = 150.0;

/// Draw the curve, and dashed over it the bound that the checkpoint schedule promises.
pub fn draw(sheet: &mut Sheet, picture: &Picture) {
    let end = picture.survey.end.0;
    let (most_expensive, _) = picture.most_expensive();
    if end == 0 {
        return;
    }
    let bound = bound(picture);
    let most = most_expensive.max(bound.unwrap_or(0).min(end as u32)).max(1);
    let across = Across { total: end };
    let up = |n: u32| HIGH * f64::from(n) / f64::from(most);

    sheet.down(20.0);
    let what = "tokens re-evaluated (upwards) for tokens rolled back (to the right)";
    sheet.text(LEFT, "start", Ink::Heading, what);
    sheet.down(40.0);
    for n in (0..=most).step_by(step(most as i32, 4) as usize) {
        let (ink, is_dashed) = if n == 0 { (Ink::Plain, false) } else { (Ink::Faint, true) };
        sheet.line(&[(LEFT, up(n)), (LEFT + WIDE, up(n))], HIGH, ink, is_dashed);
        sheet.text_at((LEFT - 12.0, HIGH - up(n) - 8.0), "end", Ink::Plain, &n.to_string());
    }
    if let Some(spacing) = bound {
        let at = |d: u32| (across.x(d as i32), up(d.max(spacing).min(most)));
        let points: Vec<_> = [0, spacing, most].into_iter().filter(|d| *d <= end as u32).map(at).collect();
        sheet.line(&points, HIGH, Ink::Window, true);
        let over = HIGH - up(spacing.min(most)) - 18.0;
        sheet.text_at((LEFT + 6.0, over), "start", Ink::Window, &format!("at most max(d, {spacing})"));
    }
    sheet.line(&points(&picture.costs, across, up), HIGH, Ink::Evaluated, false);
    sheet.down(HIGH + 4.0);
    for distance in (0..=end).step_by(step(end, 10) as usize) {
        sheet.text(across.x(distance), "middle", Ink::Plain, &distance.to_string());
    }
    sheet.down(20.0);
}

/// Return the spacing of the checkpoint schedule; none without a schedule, or after a rollback:
/// the checkpoints were then chosen for another end, and the bound does not hold for this one.
fn bound(picture: &Picture) -> Option<u32> {
    let budget = &picture.survey.budget;
    Some(budget.params.spacing).filter(|_| budget.n_paid > 0 && picture.rollbacks.is_empty())
}

/// Return the points where the curve bends, from the end of the sequence to its start: the ends of
/// each range of costs.
fn points(costs: &[CostRange], across: Across, up: impl Fn(u32) -> f64) -> Vec<(f64, f64)> {
    let ends = costs.iter().rev().flat_map(|range| {
        let (first, last) = (range.positions.start.0, range.positions.end.0 - 1);
        [last, first].map(|pos| (across.x(across.total - pos), up(n_reevaluated(range, pos))))
    });
    ends.collect()
}
