//! From a socket to a fabric: who may come over the network says that it wants to, and its first
//! words come again by the fabric then.

use std::net::TcpListener;

use wire::{FabricPlace, Frame, Joining, Link, Provider, Side, VERSION, WORDS, Welcome};

use crate::shared::Shared;
use crate::{Error, Result};

/// Those who are on a fabric and have not said their first words there, at most: an endpoint takes
/// much more than a guest does.
const JOINING_MAX: usize = 32;

/// Whether there are these at the address of the door.
pub fn check(offered: &[Provider], door: &TcpListener) -> Result<()> {
    let here = door.local_addr().map_err(Error::io("getsockname"))?.ip();
    offered.iter().try_for_each(|provider| Ok(wire::check_fabric(*provider, here)?))
}

/// Whether one who may come may go on over a fabric, where there are so many already who have not
/// said anything there.
pub fn may_join(link: &Link, joining: usize) -> std::result::Result<(), String> {
    match joining >= JOINING_MAX {
        _ if link.beside().is_some() => Err("it is on a fabric already".to_owned()),
        true => Err("as many as it takes at once are about to come over fabrics".to_owned()),
        false => Ok(()),
    }
}

/// Goes on over a fabric with one who speaks this version and is there; or says why not.
pub fn join(
    shared: &Shared,
    link: Link,
    (version, theirs): (u32, &FabricPlace),
    may_join: std::result::Result<(), String>,
) -> std::result::Result<Link, String> {
    let program = env!("CARGO_PKG_VERSION").to_owned();
    if version != VERSION {
        say(&link, &Welcome::Version { version: VERSION, program });
        return Err(format!("it speaks version {version}"));
    }
    let refuse = |link: &Link, reason: String| {
        say(link, &Welcome::Refused(reason.clone()));
        if link.beside().is_some() {
            link.transport().shut();
        }
        reason
    };
    let met = may_join.and_then(|()| meet(shared, &link, theirs));
    let (joining, place) = met.map_err(|reason| refuse(&link, reason))?;
    tracing::debug!("a fabric: {}", joining.provider());
    let link = joining.join(link, Side::Service).map_err(|error| error.to_string())?;
    link.beside().inspect(|beside| say(beside, &Welcome::Fabric(place)));
    // it is looked at once, and waited for then
    link.transport().ring();
    Ok(link)
}

/// A fabric on which the other side is.
fn meet(
    shared: &Shared,
    link: &Link,
    theirs: &FabricPlace,
) -> std::result::Result<(Joining, FabricPlace), String> {
    let offered = &shared.fabrics;
    let found = offered.iter().find(|provider| provider.name() == theirs.provider);
    let Some(provider) = found else {
        let names: Vec<_> = offered.iter().map(|provider| provider.name()).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(format!(
            "of fabrics it offers {names}: say near://, or have it served with --fabric"
        ));
    };
    let words = |error: wire::NoFabric| error.to_string();
    let mut joining = Joining::begin(*provider, link).map_err(words)?;
    joining.meet(theirs).map_err(words)?;
    let place = joining.place().map_err(words)?;
    Ok((joining, place))
}

/// Says something to one who is no session. It has said little, so that all of this is taken.
fn say(link: &Link, welcome: &Welcome) {
    let Ok(message) = serde_json::to_vec(welcome) else { return };
    let mut parts = Frame { slot: WORDS, message: &message, data: &[] }.parts();
    let sent = parts.try_for_each(|part| link.send(part.rest(0)).map(drop));
    if let Err(error) = sent.and_then(|()| link.flush()) {
        tracing::debug!(%error, "a guest does not hear");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn many_may_be_about_to_come_but_not_any_number() {
        let link = Link::plain(UnixStream::pair().unwrap().0.into());
        assert_eq!(may_join(&link, JOINING_MAX - 1), Ok(()));
        assert!(may_join(&link, JOINING_MAX).unwrap_err().contains("as it takes"));
    }
}
