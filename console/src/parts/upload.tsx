/** Sends one file to a path. */

import { useRef, useState } from "preact/hooks";
import { contentPath } from "../api";
import { upload } from "../client";
import { bytes } from "../format";
import { useAction } from "../poll";
import { ErrorLine, Progress } from "./basic";
import { Dialog } from "./dialog";
import { tell } from "./toast";

/** Largest body of one PUT, as S3 has it. */
const FILE_BYTES_MAX = 5 * 2 ** 30;

export function Upload({ into, onDone }: { into: string; onDone: () => void }) {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" class="primary" onClick={() => setOpen(true)}>
        Upload …
      </button>
      {open && <UploadDialog into={into} onDone={onDone} onClose={() => setOpen(false)} />}
    </>
  );
}

function UploadDialog({ into, onDone, onClose }: { into: string; onDone: () => void; onClose: () => void }) {
  const [file, setFile] = useState<File>();
  const [path, setPath] = useState(into);
  const [sent, setSent] = useState<number>();
  const stop = useRef(new AbortController());
  const sending = useAction(async () => {
    if (!file) return;
    stop.current = new AbortController();
    setSent(0);
    try {
      await upload(contentPath(path), file, setSent, stop.current.signal);
    } finally {
      setSent(undefined);
    }
    tell(`${path} is uploaded.`);
    onDone();
    onClose();
  });
  const choose = (chosen: File | undefined) => {
    setFile(chosen);
    if (chosen && path.endsWith("/")) setPath(path + chosen.name);
  };
  const submit = (event: Event) => {
    event.preventDefault();
    sending.run();
  };
  const close = () => {
    stop.current.abort();
    onClose();
  };
  const tooLarge = file !== undefined && file.size > FILE_BYTES_MAX;
  const names = /^\/[^/]+\/.+/.test(path) && !path.endsWith("/");
  return (
    <Dialog title="Upload an object" onClose={close}>
      <form onSubmit={submit}>
        <label>
          File
          <input type="file" required onChange={(event) => choose(event.currentTarget.files?.[0])} />
        </label>
        <label>
          Path
          <input value={path} required spellcheck={false} onInput={(event) => setPath(event.currentTarget.value)} />
        </label>
        <p class="hint">An object that is there already is replaced. The policy of the path holds: where writes are refused, this one is too.</p>
        {tooLarge && <p class="error">{bytes(file.size)} is more than one request may carry (5 GiB): use an S3 client, which sends parts.</p>}
        <ErrorLine error={sending.error} />
        {file && sent !== undefined && (
          <p class="row">
            <Progress done={sent} all={file.size} label="Sent" /> {bytes(sent)} of {bytes(file.size)}
          </p>
        )}
        <div class="buttons">
          <button type="button" onClick={close}>
            {sending.busy ? "Give up" : "Cancel"}
          </button>
          <button type="submit" class="primary" disabled={sending.busy || !file || tooLarge || !names}>
            {sending.busy ? "Uploading …" : "Upload"}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
