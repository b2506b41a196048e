//! One question to one time server (RFC 5905, as a simple client: section 14).

use std::time::{Duration, SystemTime};

use machine::clock::ClockOffset;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeAnswer {
    /// How far this machine's clock is from the server's.
    Offset(ClockOffset),
    /// It does not know the time, or refuses to answer.
    Unsynchronised,
}

const DATAGRAM_BYTES: usize = 48;
/// Seconds from 1900, where NTP begins to count, to 1970.
const NTP_EPOCH_SECONDS: u64 = 2_208_988_800;
/// NTP counts seconds in 32 bits, the first time until 2036.
const NTP_ERA_SECONDS: u64 = 1 << 32;

/// The datagram that asks for the time; `sent` comes back in the answer.
pub(super) fn query(sent: SystemTime) -> [u8; DATAGRAM_BYTES] {
    let mut bytes = [0; DATAGRAM_BYTES];
    // No warning, version 4, client.
    bytes[0] = 4 << 3 | 3;
    bytes[40..].copy_from_slice(&stamp(sent));
    bytes
}

/// Reads the answer to the query `asked`, which was sent and answered at these times by this machine's clock; `None` for any
/// other datagram.
pub(super) fn answer(asked: &[u8], datagram: &[u8], sent: SystemTime, got: SystemTime) -> Option<TimeAnswer> {
    let bytes: &[u8; DATAGRAM_BYTES] = datagram.first_chunk()?;
    if bytes[0] & 7 != 4 || bytes.get(24..32)? != asked.get(40..48)? {
        return None;
    }
    let (warning, stratum) = (bytes[0] >> 6, bytes[1]);
    if warning == 3 || !(1..16).contains(&stratum) {
        return Some(TimeAnswer::Unsynchronised);
    }
    // Half of the round-trip time is subtracted.
    let (sent, got) = (nanos(sent), nanos(got));
    let offset = ((received(bytes, 32)? - sent) + (received(bytes, 40)? - got)) / 2;
    let by = Duration::from_nanos(u64::try_from(offset.unsigned_abs()).ok()?);
    Some(TimeAnswer::Offset(ClockOffset { by, behind: offset > 0 }))
}

/// Nanoseconds since 1970; clocks before that are at 1970.
fn nanos(time: SystemTime) -> i128 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    i128::try_from(since).unwrap_or(i128::MAX)
}

fn stamp(time: SystemTime) -> [u8; 8] {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = (since.as_secs() + NTP_EPOCH_SECONDS) % NTP_ERA_SECONDS;
    let fraction = (u64::from(since.subsec_nanos()) << 32) / 1_000_000_000;
    (seconds << 32 | fraction).to_be_bytes()
}

/// The time stamp at `offset`, in nanoseconds since 1970. A machine with an empty clock battery is decades off, so the era is
/// that of this program's lifetime, not that of the clock: counts below 1 January 2000 are of the next one.
fn received(bytes: &[u8], offset: usize) -> Option<i128> {
    let stamp = u64::from_be_bytes(bytes.get(offset..)?.first_chunk().copied()?);
    let (count, fraction) = (stamp >> 32, stamp & 0xffff_ffff);
    let era = if count < 3_155_673_600 { NTP_ERA_SECONDS } else { 0 };
    let seconds = i128::from(count + era) - i128::from(NTP_EPOCH_SECONDS);
    Some(seconds * 1_000_000_000 + i128::from((fraction * 1_000_000_000) >> 32))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The answer of a server of this stratum to `asked` when its own clock says `now`.
    pub(crate) fn reply(asked: &[u8], stratum: u8, now: SystemTime) -> Vec<u8> {
        let mut bytes = vec![0; DATAGRAM_BYTES];
        (bytes[0], bytes[1]) = (4 << 3 | 4, stratum);
        bytes[24..32].copy_from_slice(&asked[40..48]);
        bytes[32..40].copy_from_slice(&stamp(now));
        bytes[40..].copy_from_slice(&stamp(now));
        bytes
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// Whole seconds, and whether behind.
    fn told(here: u64, there: u64) -> (u64, bool) {
        let asked = query(at(here));
        match answer(&asked, &reply(&asked, 2, at(there)), at(here), at(here)) {
            Some(TimeAnswer::Offset(offset)) => (offset.by.as_secs_f64().round() as u64, offset.behind),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_offset_has_a_direction_and_survives_the_end_of_the_era() {
        assert_eq!(told(1_800_000_000, 1_800_000_090), (90, true));
        assert_eq!(told(1_800_000_090, 1_800_000_000), (90, false));
        assert_eq!(told(0, 1_800_000_000), (1_800_000_000, true));
        // 7 February 2036, 06:28:16 is the first second of the next era.
        assert_eq!(told(2_085_978_490, 2_085_978_500), (10, true));
        assert_eq!(told(1_800_000_000, 2_085_978_500), (285_978_500, true));
    }

    #[test]
    fn half_of_the_way_is_taken_off() {
        let asked = query(at(100));
        let reply = reply(&asked, 2, at(2_000_000_002));
        let Some(TimeAnswer::Offset(offset)) = answer(&asked, &reply, at(2_000_000_000), at(2_000_000_004))
        else {
            panic!("no offset");
        };
        assert_eq!(offset.by, Duration::ZERO);
    }

    #[test]
    fn an_unsynchronised_server_and_a_stranger_are_told_apart() {
        let asked = query(at(1_800_000_000));
        let now = at(1_800_000_000);
        for stratum in [0, 16] {
            let reply = reply(&asked, stratum, now);
            assert_eq!(answer(&asked, &reply, now, now), Some(TimeAnswer::Unsynchronised));
        }
        let mut alarm = reply(&asked, 2, now);
        alarm[0] |= 0xc0;
        assert_eq!(answer(&asked, &alarm, now, now), Some(TimeAnswer::Unsynchronised));
        let strangers = reply(&query(at(1_800_000_001)), 2, now);
        assert_eq!(answer(&asked, &strangers, now, now), None);
        assert_eq!(answer(&asked, &asked, now, now), None);
        assert_eq!(answer(&asked, &reply(&asked, 2, now)[..47], now, now), None);
    }
}
