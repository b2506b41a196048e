//! What the kernel tells when it reads a block of a dm-verity device that is not what its hash says: an event of the device with
//! `DM_VERITY_ERR_BLOCK_NR` (`verity_handle_err` in `drivers/md/dm-verity-target.c`), as netlink(7) has it (`NETLINK_KOBJECT_UEVENT`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, socket,
};

/// The kernel's own events; udev has a group of its own.
const KERNEL_GROUP: u32 = 1;
const EVENT_BYTES: usize = 16 << 10;
const VARIABLE: &str = "DM_VERITY_ERR_BLOCK_NR=";

/// The events since it was begun.
#[derive(Debug)]
pub struct DamageEvents(OwnedFd);

impl DamageEvents {
    pub fn begin() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket =
            socket(AddressFamily::Netlink, SockType::Datagram, flags, SockProtocol::NetlinkKObjectUEvent)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, KERNEL_GROUP))?;
        Ok(Self(socket))
    }

    /// Waits at most `limit` until there is an event about damage, or a signal. Events that came too fast to be kept count as one.
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(0) if Instant::now() < until => {}
                Ok(0) | Err(Errno::EINTR) => return Ok(false),
                // Most events are about something else.
                Ok(_) if !self.read()? => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads all events that are there; whether one is about damage.
    fn read(&self) -> io::Result<bool> {
        let mut found = false;
        let mut event = vec![0; EVENT_BYTES];
        loop {
            match recv(self.0.as_raw_fd(), &mut event, MsgFlags::empty()) {
                Ok(count) => found |= is_about_damage(&event[..count]),
                Err(Errno::EAGAIN) => return Ok(found),
                Err(Errno::EINTR) => {}
                Err(Errno::ENOBUFS) => found = true,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// An event is `ACTION@PATH` and variables, with zeros between them.
fn is_about_damage(event: &[u8]) -> bool {
    event.split(|byte| *byte == 0).skip(1).any(|variable| variable.starts_with(VARIABLE.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::{send, socketpair};

    #[test]
    fn events_about_something_else_do_not_end_a_wait() {
        let (ours, kernel) =
            socketpair(AddressFamily::Unix, SockType::Datagram, None, SockFlag::SOCK_NONBLOCK).unwrap();
        let events = DamageEvents(ours);
        let tell = |text: &str| send(kernel.as_raw_fd(), text.as_bytes(), MsgFlags::empty()).unwrap();
        tell("change@/devices/x\0DEVNAME=sda\0");
        let began = Instant::now();
        assert!(!events.wait(Duration::from_millis(80)).unwrap());
        assert!(began.elapsed() >= Duration::from_millis(80));
        tell("change@/devices/x\0DEVNAME=sda\0");
        tell("change@/devices/y\0DM_VERITY_ERR_BLOCK_NR=1,7\0");
        assert!(events.wait(Duration::from_secs(60)).unwrap());
        assert!(!events.wait(Duration::ZERO).unwrap());
    }

    #[test]
    fn only_events_about_damage_count() {
        let event = |last: &str| {
            let text = format!(
                "change@/devices/virtual/block/dm-0\0ACTION=change\0DEVNAME=dm-0\0{last}\0SEQNUM=1\0"
            );
            is_about_damage(text.as_bytes())
        };
        assert!(event("DM_VERITY_ERR_BLOCK_NR=1,4711"));
        assert!(
            !event("DM_COOKIE=1") && !is_about_damage(b"") && !is_about_damage(b"DM_VERITY_ERR_BLOCK_NR=1,1")
        );
    }
}
