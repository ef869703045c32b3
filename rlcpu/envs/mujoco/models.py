"""Models of MuJoCo: where they are, how they load, and the numbers of the objects in them."""

from __future__ import annotations

import os
import pickle
import warnings
from typing import Any

import gymnasium
import mujoco

#: Folder of Gymnasium's models.
ASSETS = os.path.join(os.path.dirname(gymnasium.__file__), "envs", "mujoco", "assets")
#: Kinds of objects that `names` may name: MuJoCo's type, and mjModel's table of where their numbers
#: begin; None for objects that are named by their id.
_OBJECTS: dict[str, tuple[mujoco.mjtObj, str | None]] = {
    "actuator": (mujoco.mjtObj.mjOBJ_ACTUATOR, None),
    "body": (mujoco.mjtObj.mjOBJ_BODY, None),
    "dof": (mujoco.mjtObj.mjOBJ_JOINT, "jnt_dofadr"),
    "geom": (mujoco.mjtObj.mjOBJ_GEOM, None),
    "joint": (mujoco.mjtObj.mjOBJ_JOINT, "jnt_qposadr"),
    "sensor": (mujoco.mjtObj.mjOBJ_SENSOR, "sensor_adr"),
    "site": (mujoco.mjtObj.mjOBJ_SITE, None),
    "tendon": (mujoco.mjtObj.mjOBJ_TENDON, None),
}


def find_model(path: Any) -> str:
    """Return the path of an `xml_file`; as in Gymnasium, plain names are those of its models.

    Raises ValueError if there is no such file.
    """
    full_path = os.path.expanduser(os.fspath(path))
    if not full_path.startswith((".", os.sep)):
        full_path = os.path.join(ASSETS, full_path)
    if not os.path.exists(full_path):
        raise ValueError(f"xml_file={path!r}: there is no file {full_path}")
    return full_path


def load_model(xml: Any) -> mujoco.MjModel:
    """Return the model of a path or of XML, or a copy of a model.

    Warns:
        RuntimeWarning: MuJoCo warns of the model, which is none of Gymnasium's.

    Raises:
        TypeError: `xml` is none of these.
        ValueError: it does not load; with MuJoCo's message, which tells the line.
    """
    if isinstance(xml, mujoco.MjModel):
        return pickle.loads(pickle.dumps(xml))
    if not isinstance(xml, str | os.PathLike):
        raise TypeError(f"xml={xml!r}: expected a path, XML or a mujoco.MjModel")
    text, warning_handler = os.fspath(xml), mujoco.get_mju_user_warning()
    messages: list[str] = []
    source = "the given XML" if "<" in text else repr(text)
    mujoco.set_mju_user_warning(messages.append)  # by default a file in the present folder
    try:
        load = mujoco.MjModel.from_xml_string if "<" in text else mujoco.MjModel.from_xml_path
        model = load(text)
    except ValueError as error:
        raise ValueError(f"xml: {source} does not load: {error}") from None
    finally:
        mujoco.set_mju_user_warning(warning_handler)
    # A user can do nothing about Gymnasium's models.
    if messages and not text.startswith(ASSETS):
        warnings.warn(f"xml: {source}: {'; '.join(messages)}", RuntimeWarning, stacklevel=2)
    return model


def resolve_name(model: mujoco.MjModel, alias: str, target: Any) -> int:
    """Return the number that an entry of `names` stands for: an id, or a place in an array.

    The entry is named `alias`; its `target` is "kind:name", such as "body:torso", of an object of
    the model.
    """
    kind, _, name = target.partition(":") if isinstance(target, str) else ("", "", "")
    if kind not in _OBJECTS:
        kinds = ", ".join(_OBJECTS)
        raise ValueError(f'names[{alias!r}]={target!r}: expected "kind:name", of kind {kinds}')
    object_type, table = _OBJECTS[kind]
    id = mujoco.mj_name2id(model, object_type, name)
    if id < 0:
        # Names of mjModel's counts of objects: "nbody" and so on, but for these.
        counts = {"dof": "njnt", "joint": "njnt", "actuator": "nu"}
        total = getattr(model, counts.get(kind, f"n{kind}"))
        names = [mujoco.mj_id2name(model, object_type, i) for i in range(total)]
        raise ValueError(
            f"names[{alias!r}]={target!r}: the model has no such {kind}, it has "
            f"{', '.join(filter(None, names)) or 'none'}"
        )
    return int(id if table is None else getattr(model, table)[id])
