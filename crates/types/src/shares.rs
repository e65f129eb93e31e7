//! What many take of and nobody has a promised part of: connections, space for what waits.

/// A holder of more than this many times what is left gets no more of it. One alone gets 15 parts of 16, two get 15 of
/// 31 each, and something is always left for the next one. After A. K. Choudhury and E. L. Hahne, "Dynamic queue length
/// thresholds for shared-memory packet switches", 1998.
const TIMES: u64 = 15;

/// Whether somebody who has `held` may continue, when `left` is what nobody has.
pub fn is_fair(held: u64, left: u64) -> bool {
    held <= left.saturating_mul(TIMES)
}

/// The most that one alone can get.
pub fn largest_share(all: u64) -> u64 {
    all / (TIMES + 1) * TIMES
}

/// What somebody who has `held` may still get, when `left` is what nobody has.
pub fn room(held: u64, left: u64) -> u64 {
    left.saturating_mul(TIMES).saturating_sub(held) / (TIMES + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What takers have in the end who come one after the other, take what they may and give back what is more than
    /// fair.
    fn taken(all: u64, takers: usize) -> Vec<u64> {
        let mut held = vec![0; takers];
        for there in 1..=takers {
            for _ in 0..2 * all {
                for taker in 0..there {
                    let left = all - held.iter().sum::<u64>();
                    if left > 0 && is_fair(held[taker] + 1, left - 1) {
                        held[taker] += 1;
                    } else if !is_fair(held[taker], left) {
                        held[taker] -= 1;
                    }
                }
            }
        }
        held
    }

    #[test]
    fn one_of_a_share_leaves_room_in_it() {
        let all = 1 << 20;
        let may_have = |held: u64| is_fair(held, room(held, all - held));
        let most = largest_share(largest_share(all));
        assert!(may_have(most) && !may_have(most + all / 100));
        let left = room(most, all - most);
        assert!(left > all / 20 && is_fair(most + left, all - most - left));
    }

    #[test]
    fn nobody_takes_all_and_all_get_alike() {
        assert_eq!(taken(1600, 1), [largest_share(1600)]);
        for takers in 2..6 {
            let (held, fair) = (taken(1600, takers as usize), 1600 * TIMES / (TIMES * takers + 1));
            // One more unit that is left raises the fair share by `TIMES`.
            assert!(held.iter().all(|held| held.abs_diff(fair) <= TIMES), "{held:?} {fair}");
        }
    }
}
