//! What a tick makes of an item of the inbox (WFL-7). Each is the same if it comes twice.
use super::append::{InboxItem, Wish};
use super::definition::{Definition, hash};
use super::event::RunEvent;
use super::types::Run;

/// The event that consumes `item`.
pub(super) fn consume(run: &Run, item: &InboxItem) -> RunEvent {
    let noted = |what: String| RunEvent::Noted { item: Some(item.id), what };
    if run.status.is_end() {
        return noted(format!("{} came after the end", told(&item.wish)));
    }
    match &item.wish {
        Wish::Cancel(asked) => match &run.progress.cancel {
            Some(_) => noted("cancel was asked for already".to_owned()),
            None => RunEvent::CancelAsked { item: item.id, asked: asked.clone() },
        },
        Wish::Signal { name, payload, by } => {
            if run.progress.signals.contains_key(name) {
                return noted(format!("the signal {name} had come already"));
            }
            let (name, payload, by) = (name.clone(), payload.clone(), by.clone());
            RunEvent::Signalled { item: item.id, name, payload, by }
        }
        Wish::Definition { from, definition, by } => {
            if *from != run.definition_hash {
                return noted("a definition was accepted in place of another one than this".into());
            }
            match Definition::read(definition) {
                Err(why) => noted(format!("a definition cannot be read: {why}")),
                Ok(read) => RunEvent::DefinitionAccepted {
                    item: item.id,
                    definition: definition.clone(),
                    hash: hash(definition),
                    nodes: read.nodes.keys().cloned().collect(),
                    by: by.clone(),
                },
            }
        }
    }
}

fn told(wish: &Wish) -> String {
    match wish {
        Wish::Cancel(_) => "cancel".to_owned(),
        Wish::Signal { name, .. } => format!("the signal {name}"),
        Wish::Definition { .. } => "another definition".to_owned(),
    }
}
