//! Shares: how the demand of all vantages is laid out over the members that can take it.

use landfall_api::landfall::OverflowMode;

/// A vantage: what it asks for, and whom it may ask, from near to far.
#[derive(Clone, Debug, Default)]
pub(super) struct Asker {
    /// Requests per second; 0 where nothing is known.
    pub demand: f64,
    /// Numbers of members.
    pub order: Vec<u32>,
    /// Who took most of it before: where nothing is known of the demand, it goes on as long as it has room.
    pub before: Option<u32>,
}

/// What an asker is given.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Given {
    /// A fraction for each in its order; they add up to 1 unless there is nobody to ask.
    pub fractions: Vec<f64>,
    /// Not everything fitted: the rest was spread by capacity.
    pub full: bool,
}

/// What members can take.
#[derive(Clone, Debug)]
pub(super) struct Rooms {
    /// What is left of each one's capacity, up to the threshold; infinite where there is no limit.
    pub left: Vec<f64>,
    /// By what is spread when nothing else tells: capacity, or endpoints where there is no limit.
    pub bulk: Vec<f64>,
}

/// A nearer one that was full takes over again when so much of its capacity is free.
const FREE_AGAIN: f64 = 0.1;

impl Rooms {
    /// Whether a member has room, and so much of its bulk.
    fn has(&self, at: u32, part: f64) -> bool {
        let left = self.left(at);
        left.is_infinite() || left > self.bulk(at) * part.max(1e-9)
    }

    fn left(&self, at: u32) -> f64 {
        self.left.get(at as usize).copied().unwrap_or(0.0)
    }

    fn bulk(&self, at: u32) -> f64 {
        self.bulk.get(at as usize).copied().unwrap_or(0.0)
    }

    fn take(&mut self, at: u32, amount: f64) {
        if let Some(left) = self.left.get_mut(at as usize) {
            *left = (*left - amount).max(0.0);
        }
    }
}

/// Nearest first: everybody asks its nearest, then its next nearest for what is left, and so on. Where more is asked for than
/// there is room, the room is shared in proportion. What nobody has room for is spread by capacity.
pub(super) fn waterfall(askers: &[Asker], rooms: &mut Rooms, mode: OverflowMode) -> Vec<Given> {
    let mut given: Vec<Vec<f64>> = askers.iter().map(|asker| vec![0.0; asker.order.len()]).collect();
    let mut left: Vec<f64> = askers.iter().map(|asker| asker.demand).collect();
    let rounds = match mode {
        OverflowMode::NextNearest => askers.iter().map(|asker| asker.order.len()).max().unwrap_or(0),
        OverflowMode::Spread | OverflowMode::Never => 1,
    };
    for round in 0..rounds {
        if !ask(askers, rooms, mode, round, &mut given, &mut left) {
            break;
        }
    }
    if mode == OverflowMode::Spread {
        overflow(askers, rooms, &mut given, &mut left);
    }
    let each = askers.iter().zip(given).zip(left);
    each.map(|((asker, given), left)| conclude(asker, given, left, rooms, mode)).collect()
}

/// One round of asking; whether anybody has anything left to ask for.
fn ask(
    askers: &[Asker],
    rooms: &mut Rooms,
    mode: OverflowMode,
    round: usize,
    given: &mut [Vec<f64>],
    left: &mut [f64],
) -> bool {
    let mut asked = vec![0.0; rooms.left.len()];
    for (asker, left) in askers.iter().zip(left.iter()) {
        if let Some(sum) = asker.order.get(round).and_then(|at| asked.get_mut(*at as usize)) {
            *sum += left;
        }
    }
    let before = rooms.clone();
    let mut more = false;
    for ((asker, left), given) in askers.iter().zip(left.iter_mut()).zip(given.iter_mut()) {
        let (Some(at), Some(given)) = (asker.order.get(round), given.get_mut(round)) else { continue };
        let asked = asked.get(*at as usize).copied().unwrap_or(0.0);
        let room = before.left(*at);
        let part = if mode == OverflowMode::Never || asked <= room { 1.0 } else { room / asked };
        let taken = *left * part;
        *given += taken;
        rooms.take(*at, taken);
        *left = if part < 1.0 { *left - taken } else { 0.0 };
        more |= *left > 0.0;
    }
    more
}

/// What the nearest had no room for goes to all others by their room.
fn overflow(askers: &[Asker], rooms: &mut Rooms, given: &mut [Vec<f64>], left: &mut [f64]) {
    let total: f64 = left.iter().sum();
    let before = rooms.clone();
    for ((asker, left), given) in askers.iter().zip(left).zip(given) {
        let endless = asker.order.iter().any(|at| before.left(*at).is_infinite());
        let room = |at: u32| match (before.left(at), endless) {
            (room, false) => room,
            (room, true) if room.is_infinite() => before.bulk(at),
            (_, true) => 0.0,
        };
        let sum: f64 = asker.order.iter().map(|at| room(*at)).sum();
        if *left <= 0.0 || sum <= 0.0 {
            continue;
        }
        let fits = if endless { *left } else { *left * (sum / total).min(1.0) };
        for (at, given) in asker.order.iter().zip(given) {
            let taken = fits * room(*at) / sum;
            *given += taken;
            rooms.take(*at, taken);
        }
        *left -= fits;
    }
}

/// From amounts to fractions.
fn conclude(asker: &Asker, mut given: Vec<f64>, left: f64, rooms: &Rooms, mode: OverflowMode) -> Given {
    let demand = asker.demand;
    if demand <= 0.0 {
        return unknown(asker, rooms, mode);
    }
    given.iter_mut().for_each(|amount| *amount /= demand);
    // Where there is nobody, as when the canary is gone, nobody is full.
    let full = !asker.order.is_empty() && left > demand * 1e-9;
    if full {
        let bulks: Vec<f64> = asker.order.iter().map(|at| rooms.bulk(*at)).collect();
        for (given, part) in given.iter_mut().zip(parts(&bulks)) {
            *given += part * left / demand;
        }
    }
    Given { fractions: given, full }
}

/// Where nothing is known of the demand: all to the nearest that has room.
fn unknown(asker: &Asker, rooms: &Rooms, mode: OverflowMode) -> Given {
    let passed = |at: u32| asker.before.is_some_and(|before| before != at && asker.order.contains(&before));
    let roomy = |at: &u32| match mode {
        OverflowMode::Never => true,
        OverflowMode::NextNearest | OverflowMode::Spread => {
            rooms.has(*at, if passed(*at) { FREE_AGAIN } else { 0.0 })
        }
    };
    let any_room = || asker.order.iter().position(|at| rooms.has(*at, 0.0));
    let roomy = asker.order.iter().position(roomy).or_else(any_room);
    match roomy {
        Some(first) => {
            let one = |at: usize| if at == first { 1.0 } else { 0.0 };
            Given { fractions: (0..asker.order.len()).map(one).collect(), full: false }
        }
        None => {
            let bulks: Vec<f64> = asker.order.iter().map(|at| rooms.bulk(*at)).collect();
            Given { fractions: parts(&bulks), full: !bulks.is_empty() }
        }
    }
}

/// By weight, whoever asks: `amount` is what all ask for together. Who is full gives the rest to the others.
pub(super) fn by_weight(order: &[u32], weights: &[f64], amount: f64, rooms: &Rooms) -> Given {
    let mut fractions = vec![0.0; order.len()];
    let mut weights: Vec<f64> = weights.to_vec();
    let whole = parts(&weights);
    let mut left = 1.0;
    // Each round fills at least one of them, or is the last.
    for _ in 0..=order.len() {
        let shares = parts(&weights);
        let limit = |at: u32| if amount > 0.0 { rooms.left(at) / amount } else { f64::INFINITY };
        let mut spilled = 0.0;
        for (((at, share), fraction), weight) in
            order.iter().zip(shares).zip(&mut fractions).zip(&mut weights)
        {
            let wanted = *fraction + left * share;
            let got = wanted.min(limit(*at).max(*fraction));
            spilled += wanted - got;
            *fraction = got;
            if got < wanted {
                *weight = 0.0;
            }
        }
        left = spilled;
        if left <= 1e-9 || weights.iter().all(|weight| *weight <= 0.0) {
            break;
        }
    }
    let full = !order.is_empty() && left > 1e-9;
    for (fraction, part) in fractions.iter_mut().zip(whole) {
        *fraction += left * part;
    }
    Given { fractions, full }
}

/// Numbers as parts of their sum; equal parts where they have none.
fn parts(of: &[f64]) -> Vec<f64> {
    let sum: f64 = of.iter().sum();
    if sum > 0.0 && sum.is_finite() {
        return of.iter().map(|one| one / sum).collect();
    }
    let count = f64::from(u32::try_from(of.len()).unwrap_or(u32::MAX));
    vec![1.0 / count; of.len()]
}
