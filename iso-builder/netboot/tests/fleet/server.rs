//! A fleet behind a minimal HTTP server: the tests are about the page.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use netboot::fleet::routes::{FleetReply, FleetRequest};

use crate::scene::{NOW, Scene};

/// Called before a path is answered.
type RequestHook = fn(&Scene, &str);

/// Serves `scene` while the process lives; every page also gets the script `probe`. Returns its address.
pub(crate) fn serve(scene: Arc<Scene>, probe: &'static str, before: RequestHook) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let scene = scene.clone();
            // Errors of a connection are ignored: the browser has closed it.
            std::thread::spawn(move || drop(answer(stream, &scene, probe, before)));
        }
    });
    address
}

fn answer(mut stream: TcpStream, scene: &Scene, probe: &str, before: RequestHook) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        head.push(line.trim().to_owned());
    }
    let field = |name: &str| {
        let pairs = head.iter().skip(1).filter_map(|line| line.split_once(": "));
        pairs.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    };
    let mut words = head.first().map(String::as_str).unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut body = vec![0; field("content-length").map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body)?;
    if path == "/probe.js" {
        return write(&mut stream, &script(probe));
    }
    before(scene, path);
    let request = FleetRequest {
        method,
        path,
        query,
        cookie: field("cookie"),
        if_none_match: field("if-none-match"),
        body: &body,
        ..FleetRequest::default()
    };
    let mut reply = scene.answer(&request, NOW);
    let page = String::from_utf8_lossy(&reply.body);
    if !probe.is_empty() && page.contains("</body>") {
        reply.body = page.replace("</body>", "<script src=\"/probe.js\"></script></body>").into_bytes();
        // The probe also loads the page in a frame, which the policy forbids.
        for (_, value) in reply.headers.iter_mut().filter(|(name, _)| *name == "Content-Security-Policy") {
            *value = value.replace("frame-ancestors 'none'", "frame-src 'self'");
        }
    }
    write(&mut stream, &reply)
}

fn script(text: &str) -> FleetReply {
    let headers = vec![("Content-Type", "text/javascript".to_owned())];
    FleetReply { status: 200, headers, body: text.as_bytes().to_vec() }
}

fn write(stream: &mut TcpStream, reply: &FleetReply) -> std::io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {} X\r\nConnection: close\r\nContent-Length: {}\r\n",
        reply.status,
        reply.body.len()
    )?;
    for (name, value) in &reply.headers {
        write!(stream, "{name}: {value}\r\n")?;
    }
    stream.write_all(b"\r\n")?;
    stream.write_all(&reply.body)
}
