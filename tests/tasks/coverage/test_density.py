"""Importance densities: features, points from files, rasters, and the errors for bad ones."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from PIL import Image
from scipy.integrate import dblquad

from mast_swarm.errors import MastError
from mast_swarm.tasks.coverage.config import CoverageConfig
from mast_swarm.tasks.coverage.density import density, gaussian_sum, sample
from mast_swarm.tasks.coverage.points import EARTH, read_points

CONFIG = CoverageConfig(side=128, sensor=32, local_map=64, features=3, sigma=(6.0, 9.0))


def test_one_feature_is_integrated_over_each_cell():
    total = gaussian_sum(np.array([[60.3, 70.9]]), np.array([7.0]), np.array([0.8]), CONFIG)

    def normal(y: float, x: float) -> float:
        return 0.8 * math.exp(-((x - 60.3) ** 2 + (y - 70.9) ** 2) / 98) / (2 * math.pi * 49)

    for x, y in ((60, 70), (55, 80), (64, 60)):
        assert total[y, x] == pytest.approx(dblquad(normal, x, x + 1, y, y + 1)[0], rel=1e-9)
    centre = np.arange(128) + 0.5
    inside = (centre - 60.3) ** 2 + (centre[:, None] - 70.9) ** 2 < 14**2
    assert ((total > 0) == inside).all()
    # 2 sigma of a circular normal hold 1 - exp(-2) of its mass.
    assert total.sum() == pytest.approx(0.8 * (1 - math.exp(-2)), rel=2e-2)


def test_features_add_and_may_reach_outside():
    means, sigma, scale = np.array([[2.0, 126.0], [10.0, 120.0]]), np.array([7.0, 9.0]), np.array([0.6, 1.0])
    both = gaussian_sum(means, sigma, scale, CONFIG)
    apart = sum(gaussian_sum(means[k : k + 1], sigma[k : k + 1], scale[k : k + 1], CONFIG) for k in range(2))
    np.testing.assert_allclose(both, apart)
    assert both[127, 0] > 0


def test_resolution_keeps_the_mass():
    coarse = CoverageConfig(side=128, resolution=2.0, sensor=32, local_map=64)
    args = (np.array([[64.2, 60.0]]), np.array([8.0]), np.array([1.0]))
    fine = gaussian_sum(*args, CONFIG).reshape(64, 2, 64, 2).sum((1, 3))
    inner = np.s_[26:34, 28:36]
    np.testing.assert_allclose(gaussian_sum(*args, coarse)[inner], fine[inner], rtol=1e-9)


def test_seeded_and_normalised():
    one, two = sample("gaussians", CONFIG, 1), sample("gaussians", CONFIG, 2)
    assert one.shape == (128, 128) and one.dtype == np.float32 and one.max() == 1 and one.min() >= 0
    assert (sample("gaussians", CONFIG, 1) == one).all() and (one != two).any()


def test_every_density_is_listed_with_a_summary():
    assert [d.name for d in density] == ["gaussians", "points", "raster"]
    assert all(d.summary for d in density)


@pytest.mark.parametrize("name", ["gauss", "points", "raster:", "gaussians:3"])
def test_unknown_density(name):
    with pytest.raises(MastError, match="unknown density"):
        sample(name, CONFIG, 0)


def geojson(points, **members) -> dict:
    features = [{"type": "Feature", "geometry": {"type": "Point", "coordinates": list(p)}} for p in points]
    return {"type": "FeatureCollection", "features": features, **members}


def offset(latitude: float, longitude: float, x: float, y: float) -> tuple[float, float]:
    """Longitude, latitude of the place x metres east and y north."""
    north = math.degrees(y / EARTH)
    return longitude + math.degrees(x / EARTH / math.cos(math.radians(latitude))), latitude + north


METRES = [(10.0, 20.0), (-30.0, 5.0), (0.0, -50.0)]
PHILADELPHIA = (39.95, -75.16)


@pytest.mark.parametrize("kind", ["geojson", "multipoint", "overpass", "csv"])
def test_points_on_the_globe(tmp_path, kind):
    degrees = [offset(*PHILADELPHIA, *p) for p in METRES]
    path = tmp_path / f"signals.{kind}"
    if kind == "geojson":
        path.write_text(json.dumps(geojson([(*p, 12.0) for p in degrees])))
    elif kind == "multipoint":
        path.write_text(json.dumps({"type": "MultiPoint", "coordinates": degrees}))
    elif kind == "overpass":
        nodes = [{"type": "node", "id": n, "lat": p[1], "lon": p[0]} for n, p in enumerate(degrees[:-1])]
        way = {"type": "way", "id": 9, "center": {"lat": degrees[-1][1], "lon": degrees[-1][0]}}
        path.write_text(json.dumps({"version": 0.6, "elements": [*nodes, way]}))
    else:
        path.write_text("name,Longitude,Latitude\n" + "".join(f"s,{p[0]!r},{p[1]!r}\n" for p in degrees))
    found = read_points(str(path), 128.0, PHILADELPHIA)
    np.testing.assert_allclose(found, np.array(METRES) + 64, atol=1e-6)
    # Without a window the middle of the points is the middle of the world.
    alone = read_points(str(path), 128.0, None)
    np.testing.assert_allclose(alone.max(0) + alone.min(0), [128, 128], atol=1e-6)
    # A window leaves out what lies beyond it.
    np.testing.assert_allclose(read_points(str(path), 64.0, PHILADELPHIA), np.array(METRES[:2]) + 32, atol=1e-6)


def test_points_across_the_date_line(tmp_path):
    path = tmp_path / "fiji.csv"
    path.write_text("lat,lon\n-17.0,179.9999\n-17.0,-179.9999\n")
    found = read_points(str(path), 128.0, (-17.0, 180.0))
    assert abs(found[0, 0] - found[1, 0]) < 30


@pytest.mark.parametrize("at", [180.0, -179.9999, 0.0, 90.0])
def test_the_middle_of_points_is_on_the_arc_between_them(tmp_path, at):
    path = tmp_path / "around.csv"
    degrees = [offset(-17.0, at, *p) for p in METRES]
    path.write_text("lat,lon\n" + "".join(f"{p[1]!r},{(p[0] + 180) % 360 - 180!r}\n" for p in degrees))
    np.testing.assert_allclose(read_points(str(path), 128.0, None), np.add(METRES, (74, 79)), atol=1e-3)
    with pytest.raises(MastError, match=r"points lie outside the 32 m window; they spread over 40 x 70 m"):
        read_points(str(path), 32.0, None)


def test_swapped_latitude_and_longitude_are_hinted_at(tmp_path):
    places = [offset(*PHILADELPHIA, *p)[::-1] for p in [*METRES, (9e5, 0.0)]]
    swapped = bad_points(tmp_path, geojson(places), PHILADELPHIA)
    assert "the file has latitude -75.16" in swapped
    assert "3 of 4 would with latitude and longitude swapped: swap them in the file or --window" in swapped
    beyond = bad_points(tmp_path, geojson([(39.9, 116.4), (40.0, 116.5)]))
    assert "not on the globe: the two seem to be swapped" in beyond


def test_every_point_is_one_feature(tmp_path):
    path = tmp_path / "points.csv"
    path.write_text("x,y\n20,30\n\n100,90\n")
    density = sample(f"points:{path}", CONFIG, 0)
    centre = np.arange(128) + 0.5
    near = [(centre - x) ** 2 + (centre[:, None] - y) ** 2 < (2 * 9) ** 2 for x, y in ((20, 30), (100, 90))]
    assert density[30, 20] > 0.3 and density[90, 100] > 0.3
    assert (density[~(near[0] | near[1])] == 0).all()
    assert (sample(f"points:{path}", CONFIG, 1) != density).any()  # sigma and mass are drawn


def bad_points(tmp_path, text, window=None, side=128.0):
    path = tmp_path / "file.json"
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    with pytest.raises(MastError, match=r"file\.json") as caught:
        read_points(str(path), side, window)
    return str(caught.value)


def test_bad_points(tmp_path):
    line = {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}
    feature = {"type": "FeatureCollection", "features": [{"type": "Feature", "geometry": line}]}
    assert "type LineString" in bad_points(tmp_path, feature)
    assert "no points" in bad_points(tmp_path, geojson([]))
    nowhere = {"type": "Feature", "geometry": None, "properties": {}}
    assert "no points" in bad_points(tmp_path, {"type": "FeatureCollection", "features": [nowhere]})
    assert "no points" in bad_points(tmp_path, {"elements": []})
    assert "a way without a place: end the query with" in bad_points(
        tmp_path, {"elements": [{"type": "way", "nodes": [1, 2]}]}
    )
    for name in ("urn:ogc:def:crs:EPSG::32618", "urn:ogc:def:crs:EPSG:8.9:32618", "EPSG:14326", "OGC:CRS83"):
        crs = {"type": "name", "properties": {"name": name}}
        assert f"coordinate system {name}: convert" in bad_points(tmp_path, geojson([(1.0, 2.0)], crs=crs))
    assert "not on the globe" in bad_points(tmp_path, geojson([(486000.0, 4422000.0)]))
    assert "coordinates are ['a', 1]" in bad_points(tmp_path, geojson([("a", 1)]))
    assert "type 'Topology'" in bad_points(tmp_path, {"type": "Topology"})
    assert "not valid JSON" in bad_points(tmp_path, "{]")
    assert "expected a header" in bad_points(tmp_path, "a,b\n1,2\n")
    assert "line 3" in bad_points(tmp_path, "x,y\n1,2\n1\n")
    assert "expected finite" in bad_points(tmp_path, "x,y\n1,nan\n")
    assert "no points" in bad_points(tmp_path, "x,y\n")
    assert "1 of 2 points lie outside the 128 m window" in bad_points(tmp_path, "x,y\n1,2\n1,129\n")
    far = bad_points(tmp_path, geojson([(0.5, 1.0), (2.0, 1.0)]), PHILADELPHIA)
    assert "no point lies in the 128 m window around latitude 39.95, longitude -75.16" in far
    assert "the file has latitude 1, longitude 0.5..2: give another --window" in far
    assert "over 0 x 128 m (x 1, y 2..130)" in bad_points(tmp_path, "x,y\n1,2\n1,130\n")
    assert "--window LAT,LON" in bad_points(tmp_path, geojson([(0.0, 0.0), (0.0, 1.0), (0.0, 0.5)]))
    assert "leave out --window" in bad_points(tmp_path, "x,y\n1,2\n", PHILADELPHIA)
    with pytest.raises(MastError, match=r"cannot read points from nowhere\.csv"):
        read_points("nowhere.csv", 128.0, None)


@pytest.mark.parametrize(
    "name",
    [
        "EPSG:4326",
        "urn:ogc:def:crs:EPSG::4326",
        "urn:ogc:def:crs:EPSG:8.9:4326",
        "http://www.opengis.net/def/crs/EPSG/0/4326",
        "CRS84",
        "urn:ogc:def:crs:OGC::CRS84",
        "urn:ogc:def:crs:OGC:1.3:CRS84",
        "http://www.opengis.net/def/crs/OGC/1.3/CRS84",
    ],
)
def test_wgs84_may_be_named(tmp_path, name):
    path = tmp_path / "points.geojson"
    crs = {"type": "name", "properties": {"name": name}}
    path.write_text(json.dumps(geojson([(1.0, 2.0)], crs=crs)))
    assert read_points(str(path), 128.0, None).tolist() == [[64.0, 64.0]]


def test_features_that_are_nowhere_are_skipped(tmp_path):
    path = tmp_path / "points.geojson"
    content = geojson([(1.0, 2.0)])
    content["features"].insert(0, {"type": "Feature", "geometry": None, "properties": {}})
    path.write_text(json.dumps(content))
    assert read_points(str(path), 128.0, None).tolist() == [[64.0, 64.0]]


def test_rasters(tmp_path):
    values = np.zeros((128, 128), np.uint8)
    values[100, 5] = 200  # row 100 is at y = 100.5
    values[3, 4] = 50
    np.save(tmp_path / "map.npy", values)
    Image.fromarray(values[::-1]).save(tmp_path / "map.png")  # north up
    Image.fromarray(values[::-1].astype(np.uint16) * 100).save(tmp_path / "deep.png")
    for name in ("map.npy", "map.png", "deep.png"):
        density = sample(f"raster:{tmp_path / name}", CONFIG, 0)
        assert density[100, 5] == 1 and density[3, 4] == 0.25 and (density > 0).sum() == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((128, 128)), "zero everywhere"),
        (np.full((128, 128), -1.0), "negative cells"),
        (np.full((128, 128), np.nan), "not finite in 16384 of 16384 cells"),
        (np.ones((128, 64)), r"shape \[128, 64\], expected \[128, 128\]"),
        (np.ones((128, 128, 3)), r"shape \[128, 128, 3\]"),
        (np.full((128, 128), "a"), "expected real numbers"),
    ],
)
def test_bad_rasters(tmp_path, values, message):
    path = tmp_path / "bad.npy"
    np.save(path, values)
    with pytest.raises(MastError, match=message) as caught:
        sample(f"raster:{path}", CONFIG, 0)
    assert "bad.npy" in str(caught.value)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_pictures_of_every_mode(tmp_path, mode):
    bright = np.zeros((128, 128), np.uint8)
    bright[27, 5] = 255  # row 27 from the top is at y = 100.5
    picture = Image.fromarray(bright)
    if mode == "I;16":
        picture = Image.fromarray(bright.astype(np.uint16) * 257)
        picture.putpixel((9, 127), 1)  # would be lost in 8 bits
    picture = picture if picture.mode == mode else picture.convert(mode)
    picture.save(tmp_path / "map.picture", "PNG")  # what counts is what is in it
    density = sample(f"raster:{tmp_path / 'map.picture'}", CONFIG, 0)
    assert density[100, 5] == 1 and (density > 0).sum() == (2 if mode == "I;16" else 1)
    if mode == "I;16":
        assert density[0, 9] == pytest.approx(1 / 65535)


@pytest.mark.parametrize(
    ("kind", "found"),
    [("TIFF", "a TIFF picture"), ("JPEG", "a JPEG picture"), ("GIF", "a GIF picture"), ("BMP", "a BMP picture")],
)
def test_other_pictures_are_refused(tmp_path, kind, found):
    """Of numbers between 0 and 1 in a TIFF next to nothing would be left in 8 bits."""
    ramp = np.tile(np.linspace(0, 1, 128, dtype=np.float32), (128, 1))
    picture = Image.fromarray(ramp)
    (picture if kind == "TIFF" else picture.convert("L")).save(tmp_path / "map.png", kind)
    with pytest.raises(MastError, match=rf"map\.png: it is {found}, expected a PNG picture or an NPY array; save"):
        sample(f"raster:{tmp_path / 'map.png'}", CONFIG, 0)


def test_archives_and_damaged_rasters_are_refused(tmp_path):
    np.savez(tmp_path / "map.npz", density=np.ones((128, 128)))
    with pytest.raises(MastError, match=r"map\.npz: it is an archive \(NPZ or .*numpy\.save"):
        sample(f"raster:{tmp_path / 'map.npz'}", CONFIG, 0)
    Image.fromarray(np.ones((128, 128), np.uint8)).save(tmp_path / "map.png")
    np.save(tmp_path / "map.npy", np.ones((128, 128)))
    for name in ("map.png", "map.npy"):
        whole = (tmp_path / name).read_bytes()
        for length in (0, 8, 12, 30, 60, len(whole) // 2):
            (tmp_path / f"{length}{name}").write_bytes(whole[:length])
            with pytest.raises(MastError, match=f"cannot read a density from .*{length}{name}"):
                sample(f"raster:{tmp_path / f'{length}{name}'}", CONFIG, 0)
    (tmp_path / "open.npy").write_bytes(whole.replace(b"}", b"(", 1))
    with pytest.raises(MastError, match=r"cannot read a density from .*open\.npy"):
        sample(f"raster:{tmp_path / 'open.npy'}", CONFIG, 0)


def test_raster_that_cannot_be_read(tmp_path):
    for name, content in (("a.png", b"no picture"), ("a.npy", b"no array")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(MastError, match=f"cannot read a density from .*{name}"):
            sample(f"raster:{tmp_path / name}", CONFIG, 0)
    with pytest.raises(MastError, match=r"cannot read a density from .*none\.npy"):
        sample(f"raster:{tmp_path / 'none.npy'}", CONFIG, 0)


def test_overpass_files_as_they_come(tmp_path):
    """Wrapped by a cache, ways with their nodes or outlines, and of all places those with a tag."""
    places = [offset(*PHILADELPHIA, *p) for p in [*METRES, (-8.0, 8.0), (8.0, 16.0)]]
    signal = {"highway": "traffic_signals"}
    nodes = [{"type": "node", "id": n, "lat": p[1], "lon": p[0]} for n, p in enumerate(places)]
    for node in nodes[:2]:
        node["tags"] = signal
    nodes[2]["tags"] = {"highway": "crossing;traffic_signals"}
    way = {"type": "way", "id": 9, "nodes": [3, 4], "tags": {"building": "yes"}}
    answer = {"version": 0.6, "elements": [*nodes, way]}
    path = tmp_path / "city.json"
    for wrapped in (answer, {"data": answer, "at": 3}, {"cache": {"response": answer, "tags": []}}, [answer]):
        path.write_text(json.dumps(wrapped))
        everything = np.array([*METRES, (0.0, 12.0)]) + 64  # two nodes are the way's, which is one place
        np.testing.assert_allclose(read_points(str(path), 128.0, PHILADELPHIA), everything, atol=1e-5)
        for tag, expected in (("highway=traffic_signals", 3), ("highway", 3), ("highway=crossing", 1), ("building", 1)):
            assert len(read_points(str(path), 128.0, PHILADELPHIA, tag)) == expected
    assert "no places with the tag amenity" in str(
        raised(lambda: read_points(str(path), 128.0, PHILADELPHIA, "amenity"))
    )
    corners = [{"lat": p[1], "lon": p[0]} for p in places[3:]]
    outline = {"type": "way", "id": 1, "geometry": corners}
    box = {
        "type": "relation",
        "id": 2,
        "bounds": {
            f"{end}{axis}": pick(c[axis] for c in corners)
            for end, pick in (("min", min), ("max", max))
            for axis in ("lat", "lon")
        },
    }
    for element in (outline, box):
        path.write_text(json.dumps({"elements": [element]}))
        np.testing.assert_allclose(read_points(str(path), 128.0, PHILADELPHIA), [[64.0, 76.0]], atol=1e-5)
    path.write_text(json.dumps({"elements": [{"type": "way", "id": 1, "nodes": [77]}]}))
    assert "has a way without a place: end the query with `out center;`" in str(
        raised(lambda: read_points(str(path), 128.0, None))
    )
    path.write_text("x,y\n1,1\n")
    assert "whose points have no tags" in str(raised(lambda: read_points(str(path), 128.0, None, "highway")))


def raised(call):
    with pytest.raises(MastError) as error:
        call()
    return error.value
