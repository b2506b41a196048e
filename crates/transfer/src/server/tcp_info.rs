//! The kernel's counters of one TCP connection: the socket option `TCP_INFO` (tcp(7), linux/tcp.h), which needs `unsafe`.
//! [`transfer_rate`](super::transfer_rate) interprets them.
//!
//! Why it is sound: the descriptor is borrowed from an open socket for the length of the call; the kernel writes at most
//! as many bytes as it is told the structure has, and any bytes are valid in it, for it has only integers.
#![allow(unsafe_code)]

use std::io;
use std::mem::{MaybeUninit, offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::{IPPROTO_TCP, TCP_INFO, getsockopt, socklen_t, tcp_info};

use super::transfer_rate::ByteCounters;

/// The bytes that the kernel has to fill for the counters used here; Linux 4.10 does.
const NEEDED: usize = offset_of!(tcp_info, tcpi_rwnd_limited) + size_of::<u64>();

/// The counters of the TCP socket `socket`. [`io::ErrorKind::Unsupported`] where the kernel is too old.
pub(super) fn counters(socket: &impl AsFd) -> io::Result<ByteCounters> {
    let mut info = MaybeUninit::<tcp_info>::zeroed();
    let mut length = socklen_t::try_from(size_of::<tcp_info>()).map_err(io::Error::other)?;
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: see the module.
    let result =
        unsafe { getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, info.as_mut_ptr().cast(), &mut length) };
    Errno::result(result)?;
    if usize::try_from(length).is_ok_and(|length| length < NEEDED) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SAFETY: see the module; what the kernel has not written is zero.
    let info = unsafe { info.assume_init() };
    Ok(ByteCounters {
        received: info.tcpi_bytes_received,
        acknowledged: info.tcpi_bytes_acked,
        busy: Duration::from_micros(info.tcpi_busy_time),
        window_limited: Duration::from_micros(info.tcpi_rwnd_limited),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    #[test]
    fn the_kernel_counts_what_was_taken_and_how_long_a_closed_window_was_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(&[7; 1000]).unwrap();
        client.read_exact(&mut [0; 1000]).unwrap();
        client.write_all(&[7; 30]).unwrap();
        server.read_exact(&mut [0; 30]).unwrap();
        let before = counters(&server).unwrap();
        assert_eq!(before.received, 30);
        // The acknowledgement may be under way still, and the connection's first byte counts too.
        assert!(before.acknowledged <= 1001, "{before:?}");
        server.set_nonblocking(true).unwrap();
        let (began, block) = (Instant::now(), vec![7; 1 << 20]);
        while began.elapsed() < Duration::from_millis(600) {
            if server.write(&block).is_err() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let after = counters(&server).unwrap();
        assert!(after.acknowledged > 1000 && after.busy > Duration::from_millis(300), "{after:?}");
        assert!(after.window_limited > Duration::from_millis(300), "{after:?}");
        assert!(counters(&listener).unwrap().received == 0);
    }
}
