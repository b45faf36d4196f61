//! Settling: what is too little to move anybody, and fractions that add up.

use landfall_api::landfall::PlanVantage;

/// Fractions stay as they were while none would change by more than this. Whoever is full may so be given a little more
/// than its threshold.
const DEAD_BAND: f64 = 0.05;
/// The same where a policy says shares in percent: these are meant.
const DEAD_BAND_EXACT: f64 = 0.004;
/// Fractions are counted in these: more would be noise.
const STEPS: u32 = 1_000;

/// The fractions to plan with, and whether they are those of before.
pub(super) fn settle(
    names: &[&str],
    fractions: &[f64],
    previous: Option<&PlanVantage>,
    exact: bool,
) -> (Vec<f64>, bool) {
    let rounded = rounded(fractions);
    let Some(previous) = previous else { return (rounded, false) };
    let known = |name: &str| previous.choices.iter().find(|choice| choice.cluster == name);
    let before: Vec<f64> =
        names.iter().map(|name| known(name).map_or(0.0, |choice| choice.fraction)).collect();
    // Whoever took a part and may not any more moves everybody.
    let sum: f64 = before.iter().sum();
    let band = if exact { DEAD_BAND_EXACT } else { DEAD_BAND };
    let near = rounded.iter().zip(&before).all(|(now, before)| (now - before).abs() <= band);
    if near && (sum - 1.0).abs() < 1e-6 { (before, true) } else { (rounded, false) }
}

/// Fractions in whole steps that add up to 1: who lost most by rounding gets what is left.
fn rounded(fractions: &[f64]) -> Vec<f64> {
    if fractions.is_empty() {
        return Vec::new();
    }
    let sound = |fraction: f64| if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 0.0 };
    let scaled: Vec<f64> = fractions.iter().map(|one| sound(*one) * f64::from(STEPS)).collect();
    let mut steps: Vec<f64> = scaled.iter().map(|one| (one + 1e-6).floor()).collect();
    let mut left = f64::from(STEPS) - steps.iter().sum::<f64>();
    let mut losers: Vec<usize> = (0..scaled.len()).collect();
    let loss = |at: &usize| {
        scaled.get(*at).zip(steps.get(*at)).map_or(0, |(scaled, step)| ((scaled - step) * 1e6).round() as i64)
    };
    losers.sort_by_key(|at| std::cmp::Reverse(loss(at)));
    for at in losers {
        if left < 1.0 {
            break;
        }
        if let Some(step) = steps.get_mut(at) {
            *step += 1.0;
            left -= 1.0;
        }
    }
    // Only sums that were wrong to begin with have more to mend: the first takes it.
    if let Some(first) = steps.first_mut() {
        *first += left;
    }
    steps.into_iter().map(|step| step / f64::from(STEPS)).collect()
}

/// A measured load as plans carry it: as it was before, unless it is clearly different, and then in two digits.
pub fn settled_load(previous: Option<f64>, now: Option<f64>) -> Option<f64> {
    let now = now.filter(|now| now.is_finite() && *now > 0.0)?;
    match previous.filter(|previous| !unlike(*previous, now)) {
        Some(previous) => Some(previous),
        None => {
            let scale = 10_f64.powf(now.log10().floor() - 1.0);
            Some((now / scale).round() * scale)
        }
    }
}

/// Whether a measured number is clearly different from the one before.
pub fn unlike(before: f64, now: f64) -> bool {
    (now - before).abs() > (before.abs() * 0.2).max(0.5)
}
