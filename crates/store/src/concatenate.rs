//! New objects that are made of the bytes of others.

use std::sync::Arc;

use bytes::Bytes;
use forebay_types::ByteRange;

use crate::kept::Kept;
use crate::object::Object;
use crate::record::object::{Extent, extent_at};
use crate::room::Room;
use crate::store::Store;
use crate::writer::{Staged, Writer};
use crate::{Class, Error, ErrorKind, NewObject, Piece, Result};

impl Store {
    /// Makes a new object by concatenating others, without copying their bytes. A result that is small enough for one
    /// record is copied.
    ///
    /// # Errors
    /// `Corrupt` when one of `pieces` lacks bytes. `TooLarge` when they have more extents than a record can name.
    pub async fn concatenate(&self, pieces: &[Object], object: NewObject) -> Result<Staged> {
        let inner = &self.inner;
        let directory = inner.roomiest()?;
        let total: u64 = pieces.iter().map(Object::size).sum();
        assert_eq!(total, object.size, "the pieces make the whole");
        if total <= inner.settings.inline_bytes_max {
            let room = Room::unpromised(Arc::clone(inner), directory);
            let mut writer = Writer::new(room, Class::Durable, total);
            for piece in pieces {
                writer.append(piece.read_all().await?).await?;
            }
            return writer.finish(object).await;
        }
        let (mut extents, mut kept) = (Vec::new(), Kept::default());
        let mut start = 0;
        for piece in pieces {
            self.refer_to(piece, start, &mut extents, &mut kept).await?;
            start += piece.size();
        }
        Staged::new(Arc::clone(inner), directory, object, extents, Bytes::new(), false, kept).checked()
    }

    /// Adds the extents of `piece`, which begins at `start` in the new object. Waits when reclaim is about to move the
    /// piece, and looks it up again when reclaim has moved it.
    async fn refer_to(&self, piece: &Object, start: u64, extents: &mut Vec<Extent>, kept: &mut Kept) -> Result<()> {
        let mut piece = piece.clone();
        loop {
            let reclaimed = self.inner.room.notified();
            let pins: Option<Vec<_>> =
                piece.segments().map(|segment| Some((Arc::clone(segment), segment.pin()?))).collect();
            if let Some(pins) = pins {
                extents.extend(piece.extents_from(start)?);
                pins.into_iter().for_each(|(segment, pin)| kept.keep(segment, pin));
                return Ok(());
            }
            let now = self.inner.object(piece.key()).filter(|now| now.generation() == piece.generation());
            let now = now.ok_or_else(|| Error::new(ErrorKind::Corrupt, "a piece is gone"))?;
            if Arc::ptr_eq(now.entry(), piece.entry()) {
                reclaimed.await;
            }
            piece = now;
        }
    }
}

impl Object {
    /// All bytes of a small object.
    async fn read_all(&self) -> Result<Bytes> {
        let mut data = bytes::BytesMut::with_capacity(self.size() as usize);
        for piece in self.pieces(ByteRange::of_size(self.size())) {
            match piece {
                Piece::Cached(range) => data.extend_from_slice(&self.read(range).await?),
                Piece::Missing(_) => return Err(Error::new(ErrorKind::Corrupt, "a piece lacks bytes")),
            }
        }
        Ok(data.freeze())
    }

    /// The extents for use in another object, in which this one begins at `start`.
    fn extents_from(&self, start: u64) -> Result<Vec<Extent>> {
        let entry = self.entry();
        if self.cached_bytes() != self.size() {
            return Err(Error::new(ErrorKind::Corrupt, "a piece lacks bytes"));
        }
        if !entry.is_inline() {
            return Ok(entry
                .extents()
                .iter()
                .map(|extent| Extent { start: start + extent.start, ..*extent })
                .collect());
        }
        if entry.size() == 0 {
            return Ok(Vec::new());
        }
        // The payload of an object record serves as an extent like any other.
        Ok(vec![extent_at(start, entry.size() as u32, entry.record)])
    }
}
